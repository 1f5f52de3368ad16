package workqueue_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// The constructors without Typed in their names, and those without config, build the same queues.
func TestQueueConstructors(t *testing.T) {
	for name, q := range map[string]workqueue.TypedInterface[any]{
		"New":                workqueue.New(),
		"NewNamed":           workqueue.NewNamed("name"),
		"NewWithConfig":      workqueue.NewWithConfig(workqueue.QueueConfig{}),
		"NewTyped":           workqueue.NewTyped[any](),
		"NewTypedWithConfig": workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[any]{}),
	} {
		t.Run(name, func(t *testing.T) {
			defer q.ShutDown()
			q.Add(1)
			q.Add("a")
			q.Add(1)
			q.Add(struct{ int }{1})
			process[any](t, q, 1, "a", struct{ int }{1})
			wantName := ""
			if name == "NewNamed" {
				wantName = "name"
			}
			if got := q.(workqueue.Extended[any]).Stats().Name; got != wantName {
				t.Errorf("Stats().Name = %q, want %q", got, wantName)
			}
		})
	}
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
				Check:  workqueue.CheckInvariants[string],
				Strict: l.name == "rate-limiting",
			}.Run(t)
		})
	}
}

// A delaying queue on top of one that is not ours keeps what its lower layer does not decide.
func TestConformanceOverForeignQueue(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter, workqueue.TypedRateLimitingQueueConfig[string]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
					Clock: c.Clock, Queue: &plainQueue[string]{},
				}),
			})
		},
		NoMetrics:    true,
		PartialStats: true,
		Known: map[string]string{
			"MemoryIsGivenBack": "the queue below keeps its maps",
		},
		Skip: map[string]string{
			"ShutDownContextGivesUp":        "a drain of an empty queue whose context is done already may give up before it has looked",
			"Linearizable":                  "a key that was fetched for a getter that gave up has left the queue below, and no worker holds it",
			"LinearizableWithUnmatchedDone": "the same",
			"StressCancel":                  "a Get that waits below does not see the key that was fetched for a getter that gave up; the next one does",
		},
	}.Run(t)
}
