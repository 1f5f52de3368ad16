// Package app uses client-go's queue.
package app

import (
	"k8s.io/client-go/util/workqueue"
)

type controller struct {
	queue workqueue.TypedRateLimitingInterface[string]
}

func newController() *controller {
	c := &controller{queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	next := func() string {
		key, shutdown := c.queue.Get()
		if shutdown {
			return ""
		}
		if key == "first" {
			defer c.queue.Done(key)
		}
		return "next"
	}
	next()
	return c
}
