package workqueue_test

import (
	"runtime"
	"sync/atomic"
	"testing"

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
