package main

import (
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

func TestQueue(t *testing.T) {
	workqueuetest.Run(t, func(workqueuetest.Config[string]) workqueue.TypedRateLimitingInterface[string] {
		return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	})
}
