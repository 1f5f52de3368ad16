package main

import (
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

func TestQueue(t *testing.T) {
	workqueuetest.Run(t, func(c workqueuetest.Config[string]) workqueue.TypedRateLimitingInterface[string] {
		limiter := c.RateLimiter
		if limiter == nil {
			limiter = workqueue.DefaultTypedControllerRateLimiter[string]()
		}
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{
			Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock,
		})
	})
}
