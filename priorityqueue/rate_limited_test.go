package priorityqueue_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
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
