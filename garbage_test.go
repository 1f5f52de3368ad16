package workqueue_test

import (
	"runtime"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

func TestForgottenKeysAreGarbage(t *testing.T) {
	const n = 3000
	for name, limiter := range map[string]workqueue.TypedRateLimiter[*testkit.Object]{
		"exponential": workqueue.DefaultTypedItemBasedRateLimiter[*testkit.Object](),
		"fast slow":   workqueue.NewTypedItemFastSlowRateLimiter[*testkit.Object](1, 2, 3),
		"max of":      workqueue.DefaultTypedControllerRateLimiter[*testkit.Object](),
	} {
		t.Run(name, func(t *testing.T) {
			var c testkit.Garbage
			keys := make([]*testkit.Object, n)
			for i := range keys {
				keys[i] = c.Object()
				limiter.When(keys[i])
			}
			for i := range keys {
				limiter.NumRequeues(keys[i])
				limiter.Forget(keys[i])
				keys[i] = nil
			}
			c.Want(t, "forgotten keys", n)
			runtime.KeepAlive(limiter)
		})
	}
}
