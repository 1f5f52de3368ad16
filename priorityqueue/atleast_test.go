package priorityqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// A server asks the handler to stay away, and an event brings the key before. If the key then fails again, that is the same
// failure: it is not counted, and the key comes when the server wanted it. The root package's queue does the same.
func TestFailureWithinAtLeastIsTheSame(t *testing.T) {
	type queue interface {
		workqueue.TypedRateLimitingInterface[string]
		AddRateLimitedAfter(key string, atLeast time.Duration)
	}
	for name, build := range map[string]func() queue{
		"priorityqueue": func() queue { return pq.New(pq.Config[string]{}) },
		"workqueue": func() queue {
			return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedControllerRateLimiter[string](nil)).(queue)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := build()
				defer q.ShutDown()
				fail := func(atLeast time.Duration, failures int) {
					t.Helper()
					q.Add("a")
					key, _ := q.Get()
					q.AddRateLimitedAfter(key, atLeast)
					q.Done(key)
					if n := q.NumRequeues("a"); n != failures {
						t.Errorf("NumRequeues() = %d, want %d", n, failures)
					}
				}
				wantIn := func(d time.Duration) {
					t.Helper()
					time.Sleep(d - 1)
					synctest.Wait()
					if n := q.Len(); n != 0 {
						t.Fatalf("the key comes before %v have passed", d)
					}
					time.Sleep(1)
					synctest.Wait()
					if n := q.Len(); n != 1 {
						t.Fatalf("the key does not come after %v", d)
					}
				}
				fail(time.Minute, 1)
				time.Sleep(10 * time.Second)
				fail(0, 1)
				wantIn(50 * time.Second)
				fail(time.Minute, 2)
				time.Sleep(time.Minute - time.Second)
				fail(time.Hour, 2) // The server asks for more, while a second is left.
				time.Sleep(2 * time.Second)
				fail(0, 2)
				wantIn(time.Hour - 2*time.Second)
				fail(0, 3)
				wantIn(20 * time.Millisecond)
			})
		})
	}
}

// Also a key that has not run since counts as failed once.
func TestFailureOfAKeyThatNeverRan(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		for _, between := range []func(){func() { q.Remove("a") }, func() { q.AddWithOpts(pq.AddOpts{After: time.Hour, Delay: pq.Replace}, "a") }} {
			q.AddRateLimitedAfter("a", time.Minute)
			between()
			q.AddRateLimited("a")
			wantAt(t, q, "a", "waiting 1m0s")
		}
		if n := q.NumRequeues("a"); n != 1 {
			t.Errorf("NumRequeues() = %d, want 1", n)
		}
	})
}
