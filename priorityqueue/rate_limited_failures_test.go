package priorityqueue_test

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// A loop that always fails counts each of its failures, even if the delay becomes shorter or longer than the
// limiter's, and each time the key comes after the delay that was counted.
func TestEachServedDelayIsAFailure(t *testing.T) {
	const s = time.Second
	backoff := func() workqueue.TypedRateLimiter[string] { return workqueue.NewTypedControllerRateLimiter[string](nil) }
	for name, c := range map[string]struct {
		opts    pq.AddOpts
		longest time.Duration // from failure 20 on
	}{
		"After":                 {pq.AddOpts{RateLimited: true, After: 5 * s}, 5 * s},
		"AtLeast":               {pq.AddOpts{RateLimited: true, AtLeast: 2000 * s}, 2000 * s},
		"Latest with MaxDelay":  {pq.AddOpts{RateLimited: true, Delay: pq.Latest, MaxDelay: s}, s},
		"Replace with MaxDelay": {pq.AddOpts{RateLimited: true, Delay: pq.Replace, MaxDelay: s}, s},
		"the limiter's":         {pq.AddOpts{RateLimited: true}, 1000 * s},
	} {
		t.Run(name, func(t *testing.T) {
			script(t, pq.Config[string]{RateLimiter: backoff()}, func(t *testing.T, q *pq.Queue[string]) {
				q.Add("a")
				var failed time.Time
				for i := range 40 {
					key, _ := q.Get()
					if waited := time.Since(failed); i >= 20 && waited != c.longest {
						t.Errorf("failure %d has waited %v, want %v", i, waited, c.longest)
					}
					failed = time.Now()
					q.AddWithOpts(c.opts, key)
					q.Done(key)
				}
				if n := q.Failures("a").Count; n != 40 {
					t.Errorf("%d failures of 40 are counted", n)
				}
			})
		})
	}
}

// What fails twice in one hand-out fails once: the worker calls AddRateLimited, and its pool calls Fail.
func TestOneFailureAHandOut(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		h := &hooked{fixed: fixed(delay)}
		script(t, pq.Config[string]{RateLimiter: h}, func(t *testing.T, q *pq.Queue[string]) {
			for attempt := 1; attempt <= 3; attempt++ {
				q.Add("a")
				hold(t, q, "a")
				q.AddRateLimited("a")
				q.AddWithOpts(pq.AddOpts{RateLimited: true, Priority: 3}, "a")
				r, err := q.Fail(t.Context(), "a", workqueue.Failure{})
				if want := (workqueue.Retry{Attempt: attempt, Delay: delay, Same: true}); r != want || err != nil {
					t.Errorf("Fail() = %+v, %v, want %+v", r, err, want)
				}
				q.Done("a")
				time.Sleep(delay)
			}
			if n := h.asked.Load(); n != 3 {
				t.Errorf("the limiter was asked %d times, want 3", n)
			}
			// After Forget it is a new one.
			hold(t, q, "a")
			q.AddRateLimited("a")
			q.Forget("a")
			if r, _ := q.Fail(t.Context(), "a", workqueue.Failure{}); r.Attempt != 1 || r.Same {
				t.Errorf("Fail() after Forget = %+v", r)
			}
		})
	}
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
