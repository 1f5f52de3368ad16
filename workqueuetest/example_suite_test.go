package workqueuetest_test

import (
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
