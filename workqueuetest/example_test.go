package workqueuetest_test

import (
	"fmt"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// newQueue stands for your queue. It is generic because some cases are about keys of other types.
func newQueue[T comparable](c workqueuetest.Config[T]) workqueue.TypedInterface[T] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter,
		workqueue.TypedRateLimitingQueueConfig[T]{
			Name:            c.Name,
			MetricsProvider: c.MetricsProvider,
			Clock:           c.Clock,
		})
}

// In your test file, this function is TestMyQueue.
func testMyQueue(t *testing.T) {
	workqueuetest.Suite{
		New:    newQueue[string],
		NewAny: newQueue[any],
	}.Run(t)
}

func Example() {
	_ = testMyQueue // go test calls it
}

// The cases can be listed, for a document or to choose some of them.
func ExampleCases() {
	for _, c := range workqueuetest.Cases()[:3] {
		fmt.Printf("%s: %s\n", c.Name, c.Promise)
	}
	// Output:
	// Order: Keys come in the order in which they became queued.
	// AddTwice: Add of a queued key does nothing: it comes once, at its old place.
	// AddWhileHeld: A key that is added while a worker holds it is queued again by Done, once.
}
