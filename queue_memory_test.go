package workqueue_test

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The tests of this file put more on a queue than most programs do. The limits of memory are promises about a
// million keys. The bytes of the keys' strings are allocated before, and do not count.

const million = 1_000_000

// fewer is n with WORKQUEUE_LONG, and otherwise, or with the race detector, a fiftieth of it.
func fewer(n int) int {
	if testkit.RaceEnabled || !testkit.Long {
		return n / 50
	}
	return n
}

// A million keys come due at the same moment, while a million others are added. Each comes once.
func TestMillionKeysAtOnce(t *testing.T) {
	n := fewer(million)
	fake := testkit.NewFakeClock()
	q := options[int]{clock: fake}.delaying()
	for key := range n {
		q.AddAfter(key, time.Hour)
	}
	counts := make([]atomic.Int32, 2*n)
	var workers, left sync.WaitGroup
	left.Add(2 * n)
	for range 4 {
		workers.Go(func() {
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				counts[key].Add(1)
				q.Done(key)
				left.Done() // panics if there is one too many
			}
		})
	}
	fake.Step(time.Hour)
	for key := range n {
		q.Add(n + key)
	}
	left.Wait()
	q.ShutDownWithDrain()
	workers.Wait()
	for key := range counts {
		if c := counts[key].Load(); c != 1 {
			t.Fatalf("key %d came %d times", key, c)
		}
	}
}

// Ten thousand queues, each with a key now and one a second later: a goroutine each while a key waits, none
// afterwards and none after shutdown. All keys come.
func TestTenThousandQueues(t *testing.T) {
	n := 10_000
	if testkit.RaceEnabled { // The race detector knows at most 8128 goroutines.
		n = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		base := testkit.Goroutines()
		queues := make([]delayer[int], n)
		for i := range queues {
			queues[i] = options[int]{}.rateLimiting().(delayer[int])
			queues[i].AddAfter(i, time.Second)
			queues[i].Add(-i)
		}
		base.WantMore(t, "a key waits in each queue", n)
		time.Sleep(time.Second)
		base.WantMore(t, "all keys have come due", 0)
		for i, q := range queues {
			want := []int{-i, i}
			if i == 0 {
				want = want[:1] // 0 is -0
			}
			process(t, q, want...)
			q.AddAfter(i, time.Second)
			q.ShutDown()
			wantShutDown(t, q)
		}
		base.WantMore(t, "after shutdown", 0)
	})
}

// A program whose keys do not fit its memory limit (GOMEMLIMIT) collects garbage nearly all the time. The
// queue is as slow as the rest of it, and loses nothing: what it keeps for the next burst is gone, what it
// holds is not.
func TestMemoryLimitIsReached(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 20))
	n := fewer(60_000)
	keys := testkit.Keys(n)
	fake := testkit.NewFakeClock()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Hour)
	q := options[string]{clock: fake, limiter: limiter}.rateLimiting()
	for burst := range 2 {
		for i, key := range keys {
			switch i % 3 {
			case 0:
				q.Add(key)
			case 1:
				q.AddAfter(key, time.Duration(i)*time.Millisecond)
			case 2:
				q.AddRateLimited(key)
			}
		}
		fake.Step(time.Hour)
		seen := make(map[string]bool, n)
		for range keys {
			key, _ := q.Get()
			seen[key] = true
			q.Done(key)
		}
		if len(seen) != n || q.Len() != 0 {
			t.Fatalf("burst %d: %d keys of %d came, %d are left", burst, len(seen), n, q.Len())
		}
	}
	q.ShutDown()
}

func skipMemory(t *testing.T) {
	t.Helper()
	if testkit.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	if !testkit.Long {
		t.Skip("a million keys take seconds: set WORKQUEUE_LONG")
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

// Large keys work at every layer.
func TestLargeKeys(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue[[64 << 10]byte](nil)
	var key [64 << 10]byte
	q.Add(key)
	q.AddAfter(key, time.Hour)
	q.AddRateLimited(key)
	if got, _ := q.Get(); got != key || q.NumRequeues(key) != 1 {
		t.Errorf("a key of 64 KiB has come back as another one, or has %d requeues", q.NumRequeues(key))
	}
	q.Forget(key)
	q.Done(key)
	q.ShutDown()
}
