package priorityqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

func because(reason string) *workqueue.Cause { return &workqueue.Cause{Reason: reason} }

func quietly(reason string) *workqueue.Cause { return &workqueue.Cause{Reason: reason, Quiet: true} }

func wantCauses(t *testing.T, q *pq.Queue[string], key, want string) {
	t.Helper()
	if got := q.Causes(key).String(); got != want {
		t.Errorf("Causes(%s) are %q, want %q", key, got, want)
	}
}

// wantAgain asserts whether c, the channel of AddedAgain, is closed.
func wantAgain(t *testing.T, c <-chan struct{}, want bool, when string) {
	t.Helper()
	synctest.Wait()
	closed := false
	select {
	case <-c:
		closed = true
	default:
	}
	if c == nil || closed != want {
		t.Errorf("AddedAgain is closed: %v, and nil: %v; %s", closed, c == nil, when)
	}
}

// A handler hears of a delayed add when its time has come, and not before.
func TestAddedAgainByTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		adds  []pq.AddOpts
		after time.Duration // from which on the channel is closed, or never if zero
	}{
		{"loud", []pq.AddOpts{{After: time.Second}}, time.Second},
		{"quiet", []pq.AddOpts{{After: time.Second, Cause: quietly("1")}}, 0},
		{"rate-limited", []pq.AddOpts{{RateLimited: true}}, 3 * time.Second},
		{"rate-limited and quiet", []pq.AddOpts{{RateLimited: true, Cause: quietly("1")}}, 0},
		{"both quiet", []pq.AddOpts{{After: time.Second, Cause: quietly("1")},
			{After: 2 * time.Second, Cause: quietly("1")}}, 0},
		{"quiet, then loud", []pq.AddOpts{{After: time.Second, Cause: quietly("1")}, {After: 2 * time.Second}},
			time.Second},
		{"loud, then quiet", []pq.AddOpts{{After: 2 * time.Second}, {After: time.Second, Cause: quietly("1")}},
			time.Second},
		{"put off", []pq.AddOpts{{After: time.Second}, {After: 2 * time.Second, Delay: pq.Latest}},
			2 * time.Second},
		{"quiet now, then loud", []pq.AddOpts{{Cause: quietly("1")}, {After: time.Second}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			script(t, pq.Config[string]{RateLimiter: fixed(3 * time.Second)}, func(t *testing.T, q *pq.Queue[string]) {
				q.Add("a")
				hold(t, q, "a")
				early := q.AddedAgain("a")
				for _, o := range c.adds {
					q.AddWithOpts(o, "a")
				}
				late := q.AddedAgain("a")
				if c.after == 0 {
					time.Sleep(time.Minute)
					wantAgain(t, early, false, "in the end")
					wantAgain(t, q.AddedAgain("a"), false, "in the end")
				} else {
					time.Sleep(c.after - 1)
					if c.after > 1 {
						wantAgain(t, early, false, "before its time")
					}
					time.Sleep(time.Nanosecond)
					wantAgain(t, early, true, "at its time")
					wantAgain(t, late, true, "at its time")
					wantAgain(t, q.AddedAgain("a"), true, "at its time")
				}
				q.Done("a")
				drain(t, q, "a")
			})
		})
	}
}
