package priorityqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// A server asks the handler to stay away, and an event brings the key before. If the key then fails again,
// that is the same failure: it is not counted, and the key comes when the server wanted it. The root
// package's queue does the same.
func TestFailureWithinAtLeastIsTheSame(t *testing.T) {
	for name, build := range map[string]func() workqueue.ExtendedRateLimiting[string]{
		"priorityqueue": func() workqueue.ExtendedRateLimiting[string] { return pq.New(pq.Config[string]{}) },
		"workqueue": func() workqueue.ExtendedRateLimiting[string] {
			return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedControllerRateLimiter[string](
				nil)).(workqueue.ExtendedRateLimiting[string])
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
					q.Fail(t.Context(), key, workqueue.Failure{AtLeast: atLeast})
					q.Done(key)
					if n := q.Failures("a").Count; n != failures {
						t.Errorf("Failures() = %d, want %d", n, failures)
					}
				}
				wantIn := func(d time.Duration) {
					t.Helper()
					time.Sleep(d - 1)
					synctest.Wait()
					if n := q.Len(); n != 0 {
						t.Fatalf("the key comes before %v have passed", d)
					}
					time.Sleep(time.Nanosecond)
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
				fail(10*time.Minute, 2) // The server asks for more, while a second is left.
				time.Sleep(2 * time.Second)
				fail(0, 2)
				wantIn(10*time.Minute - 2*time.Second)
				fail(0, 3)
				wantIn(20 * time.Millisecond)
			})
		})
	}
}

// AtLeast bounds what a rate-limited add asks for from below, After from above. An add that does not ask the
// limiter counts with the time that the key has already instead.
func TestAtLeastAndAfter(t *testing.T) {
	const s = time.Second
	limited := func(after, atLeast time.Duration, policy pq.DelayPolicy) pq.AddOpts {
		return pq.AddOpts{RateLimited: true, After: after, AtLeast: atLeast, Delay: policy}
	}
	first := pq.AddOpts{RateLimited: true}
	for _, c := range []struct {
		adds []pq.AddOpts
		want string
	}{
		{[]pq.AddOpts{limited(0, 5*s, 0)}, "10s"},
		{[]pq.AddOpts{limited(0, 30*s, 0)}, "30s"},
		{[]pq.AddOpts{limited(1*s, 5*s, 0)}, "5s"},
		{[]pq.AddOpts{limited(7*s, 5*s, 0)}, "7s"},
		{[]pq.AddOpts{limited(20*s, 5*s, 0)}, "10s"},
		{[]pq.AddOpts{limited(1*s, 30*s, 0)}, "30s"},
		{[]pq.AddOpts{limited(20*s, 30*s, 0)}, "30s"},
		{[]pq.AddOpts{limited(60*s, 30*s, 0)}, "30s"},
		{[]pq.AddOpts{limited(-1, -1, 0)}, "10s"},
		{[]pq.AddOpts{{After: 1 * s, AtLeast: 30 * s}}, "1s"},
		{[]pq.AddOpts{first, limited(0, 5*s, 0)}, "10s"},
		{[]pq.AddOpts{first, limited(1*s, 5*s, 0)}, "5s"},
		{[]pq.AddOpts{first, limited(1*s, 5*s, pq.Replace)}, "5s"},
		{[]pq.AddOpts{first, limited(1*s, 30*s, 0)}, "10s"},
		{[]pq.AddOpts{first, limited(0, 30*s, pq.Latest)}, "30s"},
		{[]pq.AddOpts{first, limited(1*s, 30*s, pq.Replace)}, "30s"},
	} {
		for _, held := range []bool{false, true} {
			script(t, pq.Config[string]{RateLimiter: fixed(10 * s)}, func(t *testing.T, q *pq.Queue[string]) {
				if held {
					q.Add("a")
					hold(t, q, "a")
				}
				for _, o := range c.adds {
					q.AddWithOpts(o, "a")
				}
				if held {
					q.Done("a")
				}
				if info, _ := q.SnapshotKey("a"); time.Until(info.Due).String() != c.want {
					t.Errorf("after %+v, held: %v, it comes in %v, want %s", c.adds, held, time.Until(info.Due), c.want)
				}
			})
		}
	}
}
