package workqueue_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The limits of this file are promises. They are about a million keys; what the keys' strings point to
// is there before and counts for nothing.

const million = 1_000_000

func skipMemory(t *testing.T) {
	t.Helper()
	if testkit.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	if testing.Short() {
		t.Skip("a million keys take seconds")
	}
}

func TestMemoryOfAMillionKeys(t *testing.T) {
	skipMemory(t)
	keys := testkit.Keys(million)
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
	tests := []struct {
		name  string
		limit int64 // for a key
		fill  func(q workqueue.TypedRateLimitingInterface[string], key string)
		empty func(q workqueue.TypedRateLimitingInterface[string])
	}{
		{"queued", 73, func(q workqueue.TypedRateLimitingInterface[string], key string) { q.Add(key) }, drainAll},
		{"delayed", 100, func(q workqueue.TypedRateLimitingInterface[string], key string) {
			q.AddAfter(key, 10*time.Second)
		}, func(q workqueue.TypedRateLimitingInterface[string]) {
			time.Sleep(20 * time.Second)
			synctest.Wait()
			drainAll(q)
		}},
		{"failed", 73, func(q workqueue.TypedRateLimitingInterface[string], key string) { limiter.When(key) },
			func(q workqueue.TypedRateLimitingInterface[string]) {
				for _, key := range keys {
					q.Forget(key)
				}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// In a bubble, so that all delayed keys come due at once.
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.NewTypedRateLimitingQueue(limiter)
				before := testkit.Heap()
				for _, key := range keys {
					tt.fill(q, key)
				}
				full := testkit.Heap() - before
				t.Logf("%d bytes a key", full/million)
				if full > tt.limit*million {
					t.Errorf("%d bytes a key, at most %d are promised", full/million, tt.limit)
				}
				tt.empty(q)
				kept := testkit.Heap() - before
				t.Logf("%d KiB kept", kept>>10)
				if kept > 1<<20 {
					t.Errorf("%d KiB kept, at most 1024 are promised", kept>>10)
				}
				q.ShutDown()
			})
		})
	}
	runtime.KeepAlive(keys)
}

func drainAll(q workqueue.TypedRateLimitingInterface[string]) {
	for q.Len() > 0 {
		key, _ := q.Get()
		q.Done(key)
	}
}

// A million keys that workers held all at once, and a user's Queue for them.
func TestMemoryOfAMillionHeldKeys(t *testing.T) {
	skipMemory(t)
	keys := testkit.Keys(million)
	for name, order := range map[string]workqueue.Queue[string]{
		"ring": nil, "DefaultQueue": workqueue.DefaultQueue[string](),
	} {
		q := options[string]{order: order, name: "q", provider: silent{}}.rateLimiting()
		before := testkit.Heap()
		for _, key := range keys {
			q.Add(key)
		}
		for range keys {
			q.Get()
		}
		for _, key := range keys {
			q.Done(key)
		}
		kept := testkit.Heap() - before
		t.Logf("%s: %d KiB kept", name, kept>>10)
		if kept > 1<<20 {
			t.Errorf("%s: %d KiB kept, at most 1024 are promised", name, kept>>10)
		}
		q.ShutDown()
	}
	runtime.KeepAlive(keys)
}

func TestMemoryOfAnIdleQueue(t *testing.T) {
	skipMemory(t)
	const n = 10_000
	queues := make([]workqueue.TypedRateLimitingInterface[string], n)
	goroutines := runtime.NumGoroutine()
	before := testkit.Heap()
	for i := range queues {
		queues[i] = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	}
	size := (testkit.Heap() - before) / n
	t.Logf("%d bytes", size)
	if size > 2<<10 {
		t.Errorf("an idle queue takes %d bytes, at most 2048 are promised", size)
	}
	if g := runtime.NumGoroutine(); g > goroutines {
		t.Errorf("%d idle queues have %d goroutines", n, g-goroutines)
	}
	runtime.KeepAlive(queues)
}
