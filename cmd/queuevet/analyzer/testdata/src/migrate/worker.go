package migrate

import queue "k8s.io/client-go/util/workqueue" // want `this file compiles with`

func (c *Controller) run(limiter queue.TypedRateLimiter[string]) { work(c.queue) }

func work(q queue.TypedInterface[string]) {}
