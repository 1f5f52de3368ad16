package workqueue_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// object is something that keys point to. It is not tiny, because the collector puts tiny objects
// together and keeps them so.
type object [64]byte

// collected counts objects that the collector has found to be garbage.
type collected struct{ atomic.Int64 }

func (c *collected) object() *object {
	o := new(object)
	runtime.AddCleanup(o, func(c *collected) { c.Add(1) }, c)
	return o
}

func (c *collected) want(t *testing.T, what string, n int64) {
	t.Helper()
	eventually(t, what+" are collected", func() bool {
		runtime.GC()
		return c.Load() >= n
	})
}

// A queue that is no longer referred to is garbage, whether it was used or not, and needs no ShutDown.
func TestIdleQueueIsGarbage(t *testing.T) {
	const n = 20
	for _, l := range layers[*object]() {
		t.Run(l.name, func(t *testing.T) {
			var c collected
			for i := range n {
				q := l.build(options[*object]{})
				if d, ok := q.(delayer[*object]); ok && i%2 == 0 {
					d.AddAfter(c.object(), time.Microsecond) // its loop must end by itself
					key, _ := q.Get()
					q.Done(key)
				} else {
					// The key is still queued when the queue is dropped.
					q.Add(c.object())
				}
			}
			c.want(t, "dropped queues with their keys", n)
		})
	}
}

// A queue that lives on does not keep keys that have left it.
func TestProcessedKeysAreGarbage(t *testing.T) {
	const n = 3000 // more than any buffer starts with
	orders := map[string]workqueue.Queue[*object]{"": nil, ",DefaultQueue": workqueue.DefaultQueue[*object]()}
	for _, l := range delayingLayers[*object]() {
		for name, order := range orders {
			t.Run(l.name+name, func(t *testing.T) {
				var c collected
				q := l.build(options[*object]{order: order})
				for range n {
					q.Add(c.object())
				}
				for range n {
					key, _ := q.Get()
					q.Done(key)
				}
				c.want(t, "processed keys", n)
				runtime.KeepAlive(q)
			})
			t.Run(l.name+name+",delayed", func(t *testing.T) {
				var c collected
				q := l.build(options[*object]{order: order})
				keeper := new(object)
				q.AddAfter(keeper, time.Hour) // so that the loop, with what it has in its hands, goes on
				for range n {
					q.AddAfter(c.object(), time.Microsecond)
				}
				for range n {
					key, _ := q.Get()
					q.Done(key)
				}
				c.want(t, "delayed keys", n)
				for range n {
					q.AddAfter(c.object(), time.Hour)
				}
				q.ShutDown()
				c.want(t, "dropped keys", 2*n)
				runtime.KeepAlive(q)
			})
		}
	}
}

func TestForgottenKeysAreGarbage(t *testing.T) {
	const n = 3000
	for name, limiter := range map[string]workqueue.TypedRateLimiter[*object]{
		"exponential": workqueue.DefaultTypedItemBasedRateLimiter[*object](),
		"fast slow":   workqueue.NewTypedItemFastSlowRateLimiter[*object](1, 2, 3),
		"max of":      workqueue.DefaultTypedControllerRateLimiter[*object](),
	} {
		t.Run(name, func(t *testing.T) {
			var c collected
			keys := make([]*object, n)
			for i := range keys {
				keys[i] = c.object()
				limiter.When(keys[i])
			}
			for i := range keys {
				limiter.NumRequeues(keys[i])
				limiter.Forget(keys[i])
				keys[i] = nil
			}
			c.want(t, "forgotten keys", n)
			runtime.KeepAlive(limiter)
		})
	}
}
