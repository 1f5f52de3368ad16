package migrate

import (
	"k8s.io/client-go/util/workqueue" // want `this file compiles with github.com/keyedqueue/workqueue in place of client-go's queue`
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Controller keeps its queue to itself.
type Controller struct {
	queue workqueue.TypedRateLimitingInterface[string]
}

func New() *Controller {
	c := &Controller{queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "pods"},
	)}
	handler.Fill(c.queue) // An interface value of ours has the methods of client-go's.
	return c
}
