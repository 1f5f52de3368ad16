package forget

import "k8s.io/client-go/util/workqueue"

type never struct {
	queue workqueue.TypedRateLimitingInterface[string]
	sync  func(string) error
}

func (c *never) next() bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	if err := c.sync(key); err != nil {
		c.queue.AddRateLimited(key) // want `AddRateLimited, but no Forget when the work succeeds`
	}
	return true
}

// No key is taken from this queue here.
type source struct {
	target workqueue.TypedRateLimitingInterface[int64]
}

func (s *source) enqueue(n int64) { s.target.AddRateLimited(n) }
