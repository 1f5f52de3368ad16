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

// plain has client-go's methods and no others.
type plain[T comparable] struct{ workqueue.TypedInterface[T] }

type plainDelaying[T comparable] struct {
	workqueue.TypedDelayingInterface[T]
}

// The layers over a queue that is not ours are plain, as client-go's, and do what those do.
func TestLayersOverAForeignQueue(t *testing.T) {
	for name, build := range map[string]func(plain[string]) workqueue.TypedRateLimitingInterface[string]{
		"its delaying queue is ours": func(below plain[string]) workqueue.TypedRateLimitingInterface[string] {
			return workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
					workqueue.TypedDelayingQueueConfig[string]{Queue: below})})
		},
		"its delaying queue is not": func(below plain[string]) workqueue.TypedRateLimitingInterface[string] {
			return workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
				DelayingQueue: plainDelaying[string]{workqueue.NewTypedDelayingQueueWithConfig(
					workqueue.TypedDelayingQueueConfig[string]{Queue: below.TypedInterface})}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := testkit.Goroutines()
				below := plain[string]{workqueue.NewTyped[string]()}
				q := build(below)
				if _, ok := q.(workqueue.Extended[string]); ok {
					t.Error("the result is an Extended")
				}
				q.Add("a")
				q.AddAfter("b", time.Second)
				q.AddRateLimited("c")
				if q.NumRequeues("c") != 1 {
					t.Errorf("NumRequeues() = %d", q.NumRequeues("c"))
				}
				time.Sleep(time.Second)
				synctest.Wait()
				process(t, q, "a", "c", "b")
				base.WantMore(t, "with nothing waiting", 0)
				q.Forget("c")
				q.AddAfter("d", time.Hour)
				q.ShutDownWithDrain()
				if !below.ShuttingDown() || q.NumRequeues("c") != 0 {
					t.Error("the queue below is not shut down, or the limiter has not forgotten")
				}
				base.WantMore(t, "after shutdown", 0)
			})
		})
	}
}
