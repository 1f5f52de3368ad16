package migratehandler

import "k8s.io/client-go/util/workqueue" // want `this file compiles with`

type controller struct {
	queue workqueue.TypedRateLimitingInterface[string]
}

func (c *controller) start() { enqueue(nil, "first", c.queue) }
