package compat

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
)

// Whose code makes a part of a queue.
const (
	ours   = "ours"
	theirs = "client-go"
)

var makers = []string{ours, theirs}

// mix says which library makes which part of a rate-limiting queue.
type mix struct{ queue, delaying, limiting, limiter string }

func (m mix) String() string {
	return fmt.Sprintf("queue=%s/delaying=%s/limiting=%s/limiter=%s", m.queue, m.delaying, m.limiting, m.limiter)
}

// build makes the queue. That it compiles is half of the test: every part is passed as a value of its
// own package's type to whatever package comes next.
func (m mix) build() peer.TypedRateLimitingInterface[string] {
	var q peer.TypedInterface[string] = workqueue.NewTyped[string]()
	if m.queue == theirs {
		q = peer.NewTyped[string]()
	}
	var d workqueue.TypedDelayingInterface[string]
	if m.delaying == ours {
		d = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Queue: q})
	} else {
		d = peer.NewTypedDelayingQueueWithConfig(peer.TypedDelayingQueueConfig[string]{Queue: q})
	}
	const base, limit = 10 * time.Millisecond, time.Second
	l := workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, limit)
	if m.limiter == theirs {
		l = peer.NewTypedItemExponentialFailureRateLimiter[string](base, limit)
	}
	if m.limiting == ours {
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
	for _, queue := range makers {
		for _, delaying := range makers {
			for _, limiting := range makers {
				for _, limiter := range makers {
					m := mix{queue, delaying, limiting, limiter}
					t.Run(m.String(), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { failTwice(t, m.build()) })
					})
				}
			}
		}
	}
}

// failTwice takes keys that come now, later and rate-limited through a queue and through two failures.
func failTwice(t *testing.T, q peer.TypedRateLimitingInterface[string]) {
	start := time.Now()
	want := map[string]int{}
	for i := range 30 {
		key := fmt.Sprint("key", i)
		want[key] = 3
		switch i % 3 {
		case 0:
			q.Add(key)
		case 1:
			q.AddAfter(key, time.Duration(i)*time.Millisecond)
		case 2:
			q.AddRateLimited(key)
		}
	}

	var mu sync.Mutex
	got := map[string]int{}
	held := map[string]bool{}
	attempt := func(key string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		if held[key] {
			t.Errorf("two workers hold %s", key)
		}
		held[key] = true
		got[key]++
		return got[key]
	}
	release := func(key string) {
		mu.Lock()
		defer mu.Unlock()
		held[key] = false
	}
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				n := attempt(key)
				time.Sleep(time.Millisecond)
				if n < 3 {
					q.AddRateLimited(key)
				} else {
					q.Forget(key)
				}
				release(key)
				q.Done(key)
			}
		})
	}

	// The longest way is that of a key that was rate-limited from the start: 10, 20 and 40 ms, and its
	// share of the 90 ms that the workers take.
	time.Sleep(time.Second)
	synctest.Wait()
	mu.Lock()
	if !maps.Equal(got, want) {
		t.Errorf("after %v the keys were processed so many times: %v, want 3 times each", time.Since(start), got)
	}
	mu.Unlock()
	for key := range want {
		if n := q.NumRequeues(key); n != 0 {
			t.Errorf("%s has %d requeues after it was forgotten", key, n)
		}
	}
	if n := q.Len(); n != 0 {
		t.Errorf("%d keys are queued", n)
	}
	q.ShutDownWithDrain()
	workers.Wait()
	// client-go's waiting loop outlives a drain, and a ShutDown ends it.
	q.ShutDown()
	if !q.ShuttingDown() {
		t.Error("the queue is not shutting down")
	}
}
