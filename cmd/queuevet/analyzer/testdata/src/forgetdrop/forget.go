package forgetdrop

import "k8s.io/client-go/util/workqueue"

type controller struct {
	queue workqueue.TypedRateLimitingInterface[string]
	sync  func(string) error
}

func (c *controller) next() bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	err := c.sync(key)
	if err == nil {
		return true
	}
	if c.queue.NumRequeues(key) < 5 {
		c.queue.AddRateLimited(key) // want `AddRateLimited, but no Forget when the work succeeds`
		return true
	}
	c.queue.Forget(key)
	return true
}
