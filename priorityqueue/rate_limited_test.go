package priorityqueue_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// hooked is a limiter that calls back.
type hooked struct {
	fixed
	asked  atomic.Int32
	onWhen func(key string)
	// onRequeues, unless nil, is called by NumRequeues.
	onRequeues func()
}

func (h *hooked) NumRequeues(string) int {
	if h.onRequeues != nil {
		h.onRequeues()
	}
	return 0
}

func (h *hooked) When(key string) time.Duration {
	h.asked.Add(1)
	if h.onWhen != nil {
		h.onWhen(key)
	}
	return h.fixed.When(key)
}

func TestLimiterIsAskedOnceByManyAtOnce(t *testing.T) {
	h := &hooked{fixed: fixed(time.Hour), onWhen: func(string) {
		for range 1000 {
			runtime.Gosched() // lets the others come as far as they can
		}
	}}
	q := pq.New(pq.Config[string]{RateLimiter: h})
	defer q.ShutDown()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			q.AddRateLimited("a")
			if info, _ := q.SnapshotKey("a"); info.State != workqueue.KeyWaiting {
				t.Errorf("after AddRateLimited: %+v", info)
			}
		})
	}
	all.Wait()
	if n := h.asked.Load(); n != 1 {
		t.Errorf("the limiter was asked %d times", n)
	}
}

// A limiter may call the queue, and what happens meanwhile is not undone by its answer.
func TestLimiterCallsTheQueue(t *testing.T) {
	h := &hooked{fixed: fixed(time.Minute)}
	script(t, pq.Config[string]{RateLimiter: h}, func(t *testing.T, q *pq.Queue[string]) {
		h.onWhen = func(key string) {
			q.Len()
			q.SnapshotKey(key)
			q.Add(key)
			q.AddAfter("b", time.Hour)
		}
		q.AddRateLimited("a")
		wantAt(t, q, "a", "queued")
		wantAt(t, q, "b", "waiting 1h0m0s")
		h.onWhen = func(string) { q.ShutDown() }
		q.AddRateLimited("c")
		wantAt(t, q, "c", "absent")
		drain(t, q, "a")
	})
}

// The default limiter counts a failure once for each delay that was served, on the queue's clock, and its
// bucket gives no token for the same failure.
func TestDefaultLimiter(t *testing.T) {
	c := testkit.NewFakeClock()
	q := pq.New(pq.Config[string]{Clock: c})
	defer q.ShutDown()
	fail := func(key string, want time.Duration, failures int) {
		t.Helper()
		q.Add(key)
		hold(t, q, key)
		q.AddRateLimited(key)
		q.Done(key)
		if info, _ := q.SnapshotKey(key); info.Due.Sub(c.Now()) != want || info.Requeues != failures {
			t.Errorf("%s fails, and comes after %v with %d failures, want %v with %d", key, info.Due.Sub(c.Now()),
				info.Requeues, want, failures)
		}
	}
	const ms = time.Millisecond
	fail("a", 5*ms, 1)
	for range 1000 {
		fail("a", 5*ms, 1)
	}
	c.Step(4 * ms)
	fail("a", ms, 1)
	c.Step(ms)
	fail("a", 10*ms, 2)
	for i := range 98 {
		fail(fmt.Sprint(i), 5*ms, 1)
	}
	fail("b", 95*ms, 1) // the bucket's, which has got a token for 5 ms
	fail("b", 95*ms, 1)
}

// Code that is not ours runs without the lock.
func TestGroupCallsTheQueue(t *testing.T) {
	var q *pq.Queue[string]
	q = pq.New(pq.Config[string]{
		Group:  func(key string) string { q.Len(); return byPrefix(key) },
		Weight: func(group string) int { q.SnapshotKey("a"); return 1 },
	})
	q.AddWithOpts(pq.AddOpts{}, "a/1", "b/1")
	drain(t, q, "a/1 b/1")
	q.ShutDown()
}

// An event source that calls AddRateLimited, once a second during a call of a minute, makes it one failure at
// most, together with the call's Fail: the delay has passed each time.
func TestRateLimitedEventsOfAHeldKey(t *testing.T) {
	h := &hooked{fixed: fixed(5 * time.Millisecond)}
	script(t, pq.Config[string]{RateLimiter: h}, func(t *testing.T, q *pq.Queue[string]) {
		q.Add("a")
		for attempt := 1; attempt <= 3; attempt++ {
			hold(t, q, "a")
			for range 60 {
				time.Sleep(time.Second)
				q.AddRateLimited("a")
				q.AddWithOpts(pq.AddOpts{RateLimited: true, Priority: 3}, "a")
			}
			r, err := q.Fail(t.Context(), "a", workqueue.Failure{MaxRetries: 3})
			if want := (workqueue.Retry{Attempt: attempt, Same: true}); r != want || err != nil {
				t.Errorf("Fail() = %+v, %v, want %+v", r, err, want)
			}
			q.Done("a")
		}
		if n := h.asked.Load(); n != 3 {
			t.Errorf("the limiter was asked %d times, want 3", n)
		}
		// After Forget it is a new failure.
		hold(t, q, "a")
		q.AddRateLimited("a")
		q.Forget("a")
		want := workqueue.Retry{Attempt: 1, Delay: 5 * time.Millisecond}
		if r, _ := q.Fail(t.Context(), "a", workqueue.Failure{}); r != want {
			t.Errorf("Fail() after Forget = %+v, want %+v", r, want)
		}
	})
}

// A rate-limited add by somebody else, for which the limiter is asked while a worker gets the key, is no
// failure of this worker. Its own failure then is a new one, and waits for its delay.
func TestForeignAddIsNoFailureOfTheWorker(t *testing.T) {
	h := &hooked{fixed: fixed(time.Minute)}
	script(t, pq.Config[string]{RateLimiter: h}, func(t *testing.T, q *pq.Queue[string]) {
		q.Add("a")
		hold(t, q, "a")
		q.Fail(t.Context(), "a", workqueue.Failure{})
		q.Done("a")
		// The key does not wait for the limiter any more.
		q.AddWithOpts(pq.AddOpts{After: time.Hour, Delay: pq.Replace}, "a")
		h.onWhen = func(string) {
			time.Sleep(time.Hour)
			hold(t, q, "a")
		}
		q.AddRateLimited("a")
		h.onWhen = nil
		want := workqueue.Retry{Attempt: 2, Delay: time.Minute}
		if r, err := q.Fail(t.Context(), "a", workqueue.Failure{}); r != want || err != nil {
			t.Errorf("Fail() = %+v, %v, want %+v", r, err, want)
		}
		q.Done("a")
		wantAt(t, q, "a", "waiting 1m0s")
	})
}

// The retry of a held key interrupts nobody when it comes due. An add does, even if the retry came first.
func TestRetryDueWhileHeldIsQuiet(t *testing.T) {
	script(t, pq.Config[string]{RateLimiter: fixed(time.Second)}, func(t *testing.T, q *pq.Queue[string]) {
		q.Add("a")
		hold(t, q, "a")
		again := q.AddedAgain("a")
		wantClosed := func(when string, want bool) {
			t.Helper()
			select {
			case <-again:
				if !want {
					t.Errorf("AddedAgain is closed: %s", when)
				}
			default:
				if want {
					t.Errorf("AddedAgain is not closed: %s", when)
				}
			}
		}
		q.Fail(t.Context(), "a", workqueue.Failure{})
		time.Sleep(time.Second)
		synctest.Wait()
		if st := q.Stats(); st.Again != 1 {
			t.Errorf("Stats() = %+v, want the retry to be due", st)
		}
		wantClosed("by a retry", false)
		q.Add("a")
		wantClosed("by an add", true)
		q.Done("a")
	})
}
