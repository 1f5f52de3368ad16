package afterdone

import (
	"context"
	"fmt"

	"github.com/keyedqueue/workqueue"
)

type controller struct {
	queue, other workqueue.TypedRateLimitingInterface[string]
	syncHandler  func(ctx context.Context, key string) error
}

func (c *controller) twice() {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	defer c.queue.Done(key)
	if key == "" {
		c.queue.Done(key) // want `second Done of this key \(the first is in line \d+\): by now another worker may hold it`
		return
	}
	fmt.Println(key)
}

func (c *controller) twiceOnError(key string) {
	if err := c.syncHandler(context.Background(), key); err != nil {
		c.queue.AddRateLimited(key)
		c.queue.Done(key)
	}
	c.queue.Done(key) // want `second Done of this key`
}

func (c *controller) early(ctx context.Context) bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	c.queue.Done(key)
	if err := c.syncHandler(ctx, key); err != nil { // want `key is processed after its Done in line \d+: another worker may process it at the same time`
		c.queue.AddRateLimited(key)
	}
	return true
}

func (c *controller) earlyInGoroutine() {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	c.queue.Done(key)
	go c.process(key)
}

func (c *controller) process(key string) {}

// From here on everything is as it should be.

func (c *controller) requeueAfterDone(ctx context.Context) {
	for {
		key, quit := c.queue.Get()
		if quit {
			return
		}
		err := c.syncHandler(ctx, key)
		c.queue.Done(key)
		c.handleErr(err, key)
		fmt.Println("processed", key)
	}
}

func (c *controller) handleErr(err error, key string) {
	if err != nil {
		c.queue.AddRateLimited(key)
		return
	}
	c.queue.Forget(key)
}

func (c *controller) resultAfterDone(ctx context.Context) {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	err := c.syncHandler(ctx, key)
	c.queue.Done(key)
	c.handleResult(key, err)
}

func (c *controller) handleResult(key string, err error) { c.handleErr(err, key) }

func (c *controller) deferred(ctx context.Context) {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	defer c.queue.Done(key)
	c.handleErr(c.syncHandler(ctx, key), key)
}

func (c *controller) exclusive(key string) {
	err := c.syncHandler(context.Background(), key)
	if err != nil {
		c.queue.Done(key)
	}
	c.process(key + "x")
	if err == nil {
		c.queue.Done(key)
	}
}

func (c *controller) onceByFlag(key string, early bool) {
	done := false
	if early {
		c.queue.Done(key)
		done = true
	}
	if !done {
		c.queue.Done(key)
	}
}

func (c *controller) twoQueues(key string) {
	c.queue.Done(key)
	c.other.Done(key)
}

func all(queues []workqueue.TypedInterface[string], key string) {
	for _, queue := range queues {
		queue.Done(key)
	}
}

func (c *controller) gotAgain() {
	key, _ := c.queue.Get()
	c.queue.Done(key)
	c.queue.Add(key)
	if again, _ := c.queue.Get(); again == key {
		c.queue.Done(key)
	}
}

func (c *controller) many(keys []string) {
	for _, key := range keys {
		c.queue.Done(key)
	}
}

func (c *controller) nextKey(ctx context.Context) {
	key, quit := c.queue.Get()
	for !quit {
		c.syncHandler(ctx, key)
		c.queue.Done(key)
		key, quit = c.queue.Get()
	}
}
