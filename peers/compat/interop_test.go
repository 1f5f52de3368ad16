package compat

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// mixed makes a rate-limiting queue of parts, each of ours or of client-go's. That it compiles is half of the
// test: every part is passed as a value of its own package's type to the next package.
func mixed(ourQueue, ourDelaying, ourLimiting, ourLimiter bool) peer.TypedRateLimitingInterface[string] {
	var q peer.TypedInterface[string] = peer.NewTyped[string]()
	if ourQueue {
		q = workqueue.NewTyped[string]()
	}
	var d workqueue.TypedDelayingInterface[string]
	if ourDelaying {
		d = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Queue: q})
	} else {
		d = peer.NewTypedDelayingQueueWithConfig(peer.TypedDelayingQueueConfig[string]{Queue: q})
	}
	const base, limit = 10 * time.Millisecond, time.Second
	l := peer.NewTypedItemExponentialFailureRateLimiter[string](base, limit)
	if ourLimiter {
		l = workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, limit)
	}
	if ourLimiting {
		return workqueue.NewTypedRateLimitingQueueWithConfig(
			// Limiters within limiters of the other package.
			peer.NewTypedWithMaxWaitRateLimiter[string](workqueue.NewTypedMaxOfRateLimiter[string](l), limit),
			workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: d})
	}
	return peer.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedWithMaxWaitRateLimiter[string](peer.NewTypedMaxOfRateLimiter[string](l), limit),
		peer.TypedRateLimitingQueueConfig[string]{DelayingQueue: d})
}

// TestLayersMix builds a rate-limiting queue in all ways of two libraries and has keys fail twice,
// on a clock that skips the waiting.
func TestLayersMix(t *testing.T) {
	for n := range 16 {
		ours := func(part int) bool { return n>>part&1 == 1 }
		name := fmt.Sprintf("ours: queue=%t,delaying=%t,limiting=%t,limiter=%t", ours(0), ours(1), ours(2), ours(3))
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failTwice(t, mixed(ours(0), ours(1), ours(2), ours(3))) })
		})
	}
}

// failTwice takes keys that come now, later and rate-limited through a queue and through two failures.
func failTwice(t *testing.T, q peer.TypedRateLimitingInterface[string]) {
	q.Add("now")
	q.AddAfter("later", time.Millisecond)
	q.AddRateLimited("limited")
	got := map[string]int{}
	ended := testkit.Start(func() bool {
		for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
			if got[key]++; got[key] < 3 {
				q.AddRateLimited(key)
			} else {
				q.Forget(key)
			}
			q.Done(key)
		}
		return true
	})
	// The longest way is that of a key that was rate-limited from the start: 10, 20 and 40 ms.
	time.Sleep(time.Second)
	synctest.Wait()
	for _, key := range []string{"now", "later", "limited"} {
		if got[key] != 3 || q.NumRequeues(key) != 0 {
			t.Errorf("%s was processed %d times, want 3, and has %d requeues after it was forgotten", key, got[key],
				q.NumRequeues(key))
		}
	}
	q.ShutDownWithDrain()
	ended.MustReturn(t, "the worker")
	q.ShutDown() // client-go's waiting loop outlives a drain
	if !q.ShuttingDown() || q.Len() != 0 {
		t.Errorf("shutting down: %t, %d keys are queued", q.ShuttingDown(), q.Len())
	}
}
