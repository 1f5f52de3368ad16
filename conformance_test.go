package workqueue_test

import (
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

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
