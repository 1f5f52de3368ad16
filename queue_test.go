package workqueue_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// The constructors, those without Typed in their names included, build what their names say, with what they
// are given.
func TestConstructors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := testkit.NewFakeClock()
		limiter := workqueue.NewItemFastSlowRateLimiter(time.Second, time.Second, 0)
		config := workqueue.DelayingQueueConfig{Name: "name", Clock: fake}
		limited := workqueue.RateLimitingQueueConfig{Name: "name", Clock: fake}
		for name, tt := range map[string]struct {
			queue           workqueue.TypedInterface[any]
			isNamed, onFake bool
		}{
			"New":           {workqueue.New(), false, false},
			"NewNamed":      {workqueue.NewNamed("name"), true, false},
			"NewWithConfig": {workqueue.NewWithConfig(workqueue.QueueConfig{}), false, false},
			"NewTyped":      {workqueue.NewTyped[any](), false, false},
			"NewTypedWithConfig": {workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[any]{}),
				false, false},
			"NewDelayingQueue":                {workqueue.NewDelayingQueue(), false, false},
			"NewTypedDelayingQueue":           {workqueue.NewTypedDelayingQueue[any](), false, false},
			"TypedNewDelayingQueue":           {workqueue.TypedNewDelayingQueue[any](), false, false},
			"NewDelayingQueueWithConfig":      {workqueue.NewDelayingQueueWithConfig(config), true, true},
			"NewTypedDelayingQueueWithConfig": {workqueue.NewTypedDelayingQueueWithConfig(config), true, true},
			"NewNamedDelayingQueue":           {workqueue.NewNamedDelayingQueue("name"), true, false},
			"NewDelayingQueueWithCustomQueue": {workqueue.NewDelayingQueueWithCustomQueue(workqueue.New(), "name"),
				true, false},
			"nil custom queue":                {workqueue.NewDelayingQueueWithCustomQueue(nil, "name"), true, false},
			"NewDelayingQueueWithCustomClock": {workqueue.NewDelayingQueueWithCustomClock(fake, "name"), true, true},
			"NewRateLimitingQueue":            {workqueue.NewRateLimitingQueue(limiter), false, false},
			"NewTypedRateLimitingQueue":       {workqueue.NewTypedRateLimitingQueue[any](limiter), false, false},
			"NewRateLimitingQueueWithConfig": {workqueue.NewRateLimitingQueueWithConfig(limiter, limited),
				true, true},
			"NewTypedRateLimitingQueueWithConfig": {
				workqueue.NewTypedRateLimitingQueueWithConfig[any](limiter, limited), true, true},
			"NewNamedRateLimitingQueue": {workqueue.NewNamedRateLimitingQueue(limiter, "name"), true, false},
			"NewRateLimitingQueueWithDelayingInterface": {
				workqueue.NewRateLimitingQueueWithDelayingInterface(workqueue.NewDelayingQueueWithConfig(config),
					limiter), true, true},
			"nil delaying queue": {workqueue.NewRateLimitingQueueWithDelayingInterface(nil, limiter), false, false},
		} {
			if got := tt.queue.(workqueue.Extended[any]).Stats().Name == "name"; got != tt.isNamed {
				t.Errorf("%s: is named: %v, want %v", name, got, tt.isNamed)
			}
			tt.queue.Add(1)
			want := []any{1}
			if q, ok := tt.queue.(workqueue.TypedRateLimitingInterface[any]); ok {
				q.AddRateLimited("a")
				want = append(want, "a")
			} else if q, ok := tt.queue.(workqueue.TypedDelayingInterface[any]); ok {
				q.AddAfter("a", time.Second)
				want = append(want, "a")
			}
			synctest.Wait()
			if tt.onFake {
				fake.Step(time.Second)
			} else {
				time.Sleep(time.Second)
			}
			synctest.Wait()
			process(t, tt.queue, want...)
			tt.queue.ShutDown()
		}
	})
}

// With key types that are no interfaces, the only bad keys are NaN. (The conformance suite has the others.)
func TestNaN(t *testing.T) {
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[float64]) {
		q := build(options[float64]{})
		for range 100 { // many, so that nothing of them must pile up
			testkit.WantPanic(t, "Add", func() { q.Add(math.NaN()) })
			testkit.WantPanic(t, "AddAfter", func() { q.AddAfter(math.NaN(), time.Second) })
		}
		if st := q.Stats(); st.Queued+st.Waiting != 0 {
			t.Errorf("Stats() = %+v", st)
		}
		// Zeros of both signs are equal, and so one key.
		q.Add(0)
		q.Add(math.Copysign(0, -1))
		q.Add(math.Inf(1))
		process(t, q, 0, math.Inf(1))
	})
}

// nosyKey is not equal to itself, and looks at its queue when it is printed.
type nosyKey struct {
	x float64
	q *workqueue.Typed[nosyKey]
}

func (k nosyKey) String() string { return fmt.Sprint(k.q.Len()) }

func TestPanicDoesNotPrintTheKey(t *testing.T) {
	q := workqueue.NewTyped[nosyKey]()
	testkit.WantPanic(t, "Add", func() { q.Add(nosyKey{math.NaN(), q}) })
	q.Add(nosyKey{1, q})
	if q.Len() != 1 {
		t.Errorf("Len() = %d after a panic", q.Len())
	}
}

// optionsOf makes options of what the conformance suite wants of a layer.
func optionsOf[T comparable](layer string, c workqueuetest.Config[T]) options[T] {
	o := options[T]{name: c.Name, provider: c.MetricsProvider, clock: c.Clock, limiter: c.RateLimiter}
	if strings.HasSuffix(layer, ",custom") {
		// Our listQueue needs quadratic time, which is too much for a burst of keys.
		o.order = workqueue.DefaultQueue[T]()
	}
	return o
}

// Every queue of this package keeps the whole contract, at every layer.
func TestConformance(t *testing.T) {
	forAny := make(map[string]builder[any])
	for _, l := range layers[any]() {
		forAny[l.name] = l.build
	}
	for _, l := range layers[string]() {
		t.Run(l.name, func(t *testing.T) {
			workqueuetest.Suite{
				New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
					return l.build(optionsOf(l.name, c))
				},
				NewAny: func(c workqueuetest.Config[any]) workqueue.TypedInterface[any] {
					return forAny[l.name](optionsOf(l.name, c))
				},
				Check: workqueue.CheckInvariants[string],
				Lacks: lacks(l.name),
			}.Run(t)
		})
	}
}

// lacks is what a layer has not got because it belongs to a higher one.
func lacks(layer string) map[string]string {
	const why = "a higher layer has it"
	switch {
	case strings.HasPrefix(layer, "typed"):
		return map[string]string{workqueuetest.Delays: why, workqueuetest.Limiter: why, workqueuetest.Failures: why}
	case strings.HasPrefix(layer, "delaying"):
		return map[string]string{workqueuetest.Limiter: why, workqueuetest.Failures: why}
	}
	return nil
}

// A delaying queue on top of one that is not ours keeps what its lower layer does not decide.
func TestConformanceOverForeignQueue(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter,
				workqueue.TypedRateLimitingQueueConfig[string]{
					Clock: c.Clock,
					DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
						Clock: c.Clock, Queue: newPlain[string](),
					}),
				})
		},
		NoMetrics:    true,
		PartialStats: true,
		Known: map[string]string{
			"AddedAt":         "the queue below does not know it",
			"AddedAtOfDelays": "the same",
			"SnapshotsOfKeys": "the queue below does not show its queued keys",
		},
		Lacks: map[string]string{workqueuetest.AnyKeys: "the plain queue is not built for them"},
		Skip: map[string]string{
			"Linearizable":                  "a key that was fetched for a getter that gave up has left the queue below, and no worker holds it",
			"LinearizableWithUnmatchedDone": "the same",
			"StressCancel":                  "a Get that waits below does not see the key that was fetched for a getter that gave up; the next one does",
		},
	}.Run(t)
}

// foreignLimiting hides what a queue has beyond client-go's methods.
type foreignLimiting struct {
	workqueue.TypedRateLimitingInterface[string]
}

// What Extend makes of a foreign rate-limiting queue keeps what that queue does not decide.
func TestConformanceOfExtend(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			inner := foreignLimiting{workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter,
				workqueue.TypedRateLimitingQueueConfig[string]{Clock: c.Clock})}
			q := workqueue.ExtendRateLimiting(inner)
			workqueuetest.Wraps(t, q, inner)
			return q
		},
		NoMetrics:    true,
		PartialStats: true,
		Known: map[string]string{
			"AddedAt":           "the queue below does not say it",
			"AddedAtOfDelays":   "the same",
			"SnapshotsOfKeys":   "the queue below does not show its queued keys",
			"Fail":              "the queue below does not say how long a key waits",
			"FailWithinDelay":   "the same",
			"FailGivesUp":       "the same",
			"FailAfterShutDown": "the same",
		},
		Lacks: map[string]string{workqueuetest.AnyKeys: "it is built for strings"},
		Skip: map[string]string{
			"Linearizable":                  "a key that was fetched for a getter that gave up has left the queue below, and no worker holds it",
			"LinearizableWithUnmatchedDone": "the same",
			"StressCancel":                  "a Get that waits below does not see the key that was fetched for a getter that gave up; the next one does",
		},
	}.Run(t)
}

// Over a foreign queue the wrapper counts for itself.
func TestFailOverForeignQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := foreignLimiting{workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second, Max: 10 * second}))}
		q := workqueue.ExtendRateLimiting(inner)
		defer q.ShutDown()
		fail := func(f workqueue.Failure, want workqueue.Retry) {
			t.Helper()
			hold(t, q, "a")
			got, err := q.Fail(t.Context(), "a", f)
			if got != want || err != nil {
				t.Errorf("Fail() = %+v, %v, want %+v", got, err, want)
			}
			q.Done("a")
		}
		q.Add("a")
		fail(workqueue.Failure{}, workqueue.Retry{Attempt: 1})
		if s := q.Snapshot(9); len(s.Failing) != 1 || s.Failing[0].Requeues != 1 {
			t.Errorf("Snapshot has the failing keys %+v", s.Failing)
		}
		q.Add("a") // An event: the queue does not say how long the key waits, so each failed call counts.
		fail(workqueue.Failure{MaxRetries: 9}, workqueue.Retry{Attempt: 2})
		time.Sleep(time.Second)
		synctest.Wait()
		fail(workqueue.Failure{AtLeast: time.Minute}, workqueue.Retry{Attempt: 3, Delay: time.Minute})
		q.Add("a")
		fail(workqueue.Failure{}, workqueue.Retry{Attempt: 3, Delay: time.Minute, Same: true})
		time.Sleep(time.Minute)
		synctest.Wait()
		fail(workqueue.Failure{MaxRetries: 3}, workqueue.Retry{Attempt: 4, GivenUp: true})
		if n := q.Failures("a").Count; n != 0 || inner.NumRequeues("a") != 0 {
			t.Errorf("%d failures, the limiter counts %d", n, inner.NumRequeues("a"))
		}
	})
}
