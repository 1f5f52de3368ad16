package workqueue_test

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The tests of this file put more on a queue than most programs do, or slow it down from outside. Each says what
// holds all the same.

// fewer is n, or so much less that the race detector is done with it in the same time.
func fewer(n int) int {
	if testkit.RaceEnabled || testing.Short() {
		return n / 50
	}
	return n
}

// A user's Queue, clock, limiter and metrics that are slow make the queue slow, and nothing else: each key is
// held by one worker at a time, what was added last is processed, the gauges end at zero.
func TestSlowForeignCode(t *testing.T) {
	// slow lets other goroutines run for some time. It cannot sleep in a bubble's time: much of it runs under the
	// queue's lock, and a goroutine that waits for a lock keeps that time from passing.
	slow := func() {
		for range 100 {
			runtime.Gosched()
		}
	}
	r := &testkit.Recorder{On: func(string) { slow() }}
	q := options[int]{
		name: "q", provider: r, limiter: slowLimiter{slow},
		clock: &testkit.HookedClock{WithTicker: clock.RealClock{}, OnNow: slow, OnReset: slow},
		order: &testkit.ListQueue[int]{On: func(string) { slow() }},
	}.rateLimiting()
	const keys = 8
	var added, done [keys]atomic.Int64
	var holders [keys]atomic.Int32
	var producers, workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				if holders[key].Add(1) != 1 {
					t.Errorf("two workers hold key %d", key)
				}
				done[key].Store(added[key].Load())
				q.Forget(key)
				holders[key].Add(-1)
				q.Done(key)
			}
		})
	}
	for range 3 {
		producers.Go(func() {
			for i := range 4 * keys {
				key := i % keys
				added[key].Add(1)
				switch i % 3 {
				case 0:
					q.Add(key)
				case 1:
					q.AddRateLimited(key)
				case 2:
					q.AddAfter(key, time.Microsecond)
				}
			}
		})
	}
	producers.Wait()
	testkit.Eventually(t, "the last delayed key comes", func() bool {
		return q.(workqueue.Extended[int]).Stats().Waiting == 0
	})
	q.ShutDownWithDrain()
	workers.Wait()
	for key := range keys {
		if a, d := added[key].Load(), done[key].Load(); a != d {
			t.Errorf("key %d: version %d of %d was processed last", key, d, a)
		}
	}
	for _, gauge := range []string{"depth", "unfinished", "longest"} {
		if v := r.Value(gauge); v != 0 {
			t.Errorf("%s = %v in the end", gauge, v)
		}
	}
}

// A limiter that hangs blocks only its caller: no lock is held while it is asked.
func TestLimiterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		limiter := &script{delays: []time.Duration{time.Second}, on: func() { <-stuck }}
		q := endAfterFailure(t, options[string]{limiter: limiter}.rateLimiting())
		add := testkit.Start(func() bool { q.AddRateLimited("a"); return true })
		add.MustBlock(t, "AddRateLimited")
		q.Add("b")
		q.AddAfter("c", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		process[string](t, q, "b", "c")
		close(stuck)
		add.MustReturn(t, "AddRateLimited")
		time.Sleep(time.Second)
		synctest.Wait()
		process[string](t, q, "a")
		q.ShutDown()
	})
}

// A million keys that come due in the same moment, while a million are added: each comes once for each.
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

// One key, a million times, in every way: it is one key, it waits once, each failure is counted and the delay
// is the longest, and what was added last is processed.
func TestSameKeyAMillionTimes(t *testing.T) {
	n := fewer(million)
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Hour)
	fake := testkit.NewFakeClock()
	q := options[string]{limiter: limiter, clock: fake}.rateLimiting()
	for i := range n {
		q.AddAfter("a", time.Duration(n-i)*time.Second) // each the earliest
		q.AddRateLimited("a")
	}
	if st := q.(workqueue.Extended[string]).Stats(); st.Waiting != 1 || st.Queued != 0 {
		t.Errorf("Stats() = %+v, want 1 waiting", st)
	}
	if r, d := q.NumRequeues("a"), limiter.When("a"); r != n || d != time.Hour {
		t.Errorf("NumRequeues() = %d, When() = %v, want %d and an hour", r, d, n)
	}
	var version, seen atomic.Int64
	var worker sync.WaitGroup
	worker.Go(func() {
		for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
			seen.Store(version.Load())
			q.Done(key)
		}
	})
	var producers sync.WaitGroup
	for range 2 {
		producers.Go(func() {
			for range n / 2 {
				version.Add(1)
				q.Add("a")
			}
		})
	}
	producers.Wait()
	q.ShutDownWithDrain()
	worker.Wait()
	if v, s := version.Load(), seen.Load(); v != s {
		t.Errorf("version %d of %d was processed last", s, v)
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

// A program whose keys do not fit its memory limit (GOMEMLIMIT) collects garbage nearly all the time. The queue
// is as slow as the rest of it, and loses nothing: what it keeps for the next burst is gone, what it holds is not.
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
