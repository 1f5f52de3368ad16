package forgetok

import (
	"errors"

	"k8s.io/client-go/util/workqueue"
)

type usual struct {
	queue workqueue.TypedRateLimitingInterface[string]
	sync  func(string) error
}

func (c *usual) next() bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	if err := c.sync(key); err != nil {
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

type split struct {
	queue workqueue.TypedRateLimitingInterface[int]
	sync  func(int) error
}

func (c *split) next() bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	c.handleErr(c.sync(key), key)
	return true
}

func (c *split) handleErr(err error, key int) {
	if err == nil {
		c.succeeded(key)
		return
	}
	if errors.Is(err, errors.ErrUnsupported) {
		c.queue.Forget(key)
		return
	}
	c.queue.AddRateLimited(key)
}

func (c *split) succeeded(key int) { c.queue.Forget(key) }

type first struct {
	queue workqueue.TypedRateLimitingInterface[uint]
	sync  func(uint) error
}

func (c *first) next() {
	key, _ := c.queue.Get()
	defer c.queue.Done(key)
	c.queue.Forget(key) // no backoff that grows
	if err := c.sync(key); err != nil {
		c.queue.AddRateLimited(key)
	}
}

type deferred struct {
	queue workqueue.TypedRateLimitingInterface[uint8]
	sync  func(uint8) error
}

func (c *deferred) next() {
	key, _ := c.queue.Get()
	defer c.queue.Done(key)
	err := c.sync(key)
	defer func() {
		if err == nil {
			c.queue.Forget(key)
		}
	}()
	if err != nil {
		c.queue.AddRateLimited(key)
	}
}

// A token bucket remembers no keys.
func bucket(sync func(rune) error) {
	queue := workqueue.NewTypedRateLimitingQueue[rune](&workqueue.TypedBucketRateLimiter[rune]{})
	for {
		key, quit := queue.Get()
		if quit {
			return
		}
		if sync(key) != nil {
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}

type inCaller struct {
	queue workqueue.TypedRateLimitingInterface[uint16]
	sync  func(uint16) error
}

func (c *inCaller) next() {
	key, _ := c.queue.Get()
	defer c.queue.Done(key)
	if c.try(key) {
		c.queue.Forget(key)
	}
}

func (c *inCaller) try(key uint16) bool {
	if err := c.sync(key); err != nil {
		c.queue.AddRateLimited(key)
		return false
	}
	return true
}
