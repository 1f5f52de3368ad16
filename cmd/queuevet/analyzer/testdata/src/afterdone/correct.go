package afterdone

import (
	"context"
	"fmt"

	"github.com/keyedqueue/workqueue"
)

// Nothing here may be reported.

func (c *controller) branches(ctx context.Context, key string) {
	if err := c.syncHandler(ctx, key); err != nil {
		c.queue.AddRateLimited(key)
		c.queue.Done(key)
		return
	}
	c.queue.Forget(key)
	c.queue.Done(key)
}

func (c *controller) requeues(ctx context.Context) {
	for {
		key, quit := c.queue.Get()
		if quit {
			return
		}
		err := c.syncHandler(ctx, key)
		c.queue.Done(key)
		if err != nil {
			c.queue.AddRateLimited(key)
			fmt.Println(key, err)
			continue
		}
		c.queue.Forget(key)
	}
}

func (c *controller) eitherQueue(key string, first bool) {
	queue := c.queue
	queue.Done(key)
	queue = c.other
	queue.Done(key)
}

func (c *controller) inGoroutines(ctx context.Context) {
	for {
		key, quit := c.queue.Get()
		if quit {
			return
		}
		go func() {
			defer c.queue.Done(key)
			_ = c.syncHandler(ctx, key)
		}()
	}
}

func (c *controller) nextOfMany(ctx context.Context, keys []string) {
	for i := 0; i < len(keys); i++ {
		key := keys[i]
		_ = c.syncHandler(ctx, key)
		c.queue.Done(key)
	}
}

func (c *controller) switched(key string, state int) {
	switch state {
	case 0:
		c.queue.Done(key)
	case 1:
		c.other.Done(key)
		c.queue.Done(key)
	}
}

func (c *controller) exactlyOnce(key string, n int) {
	for i := 0; i < n; i++ {
		if i == 3 {
			c.queue.Done(key)
		}
	}
}

func done[T comparable](queue workqueue.TypedInterface[T], keys chan T) {
	for key := range keys {
		queue.Done(key)
	}
}
