package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A key is given up at its first failure after it has been failing for longer than RetryFor. The handler sees
// since when it fails, and that the attempt is the last one.
func TestRetryFor(t *testing.T) {
	for name, newQueue := range map[string]func() stringQueue{
		"fifo":     func() stringQueue { return newQueue() },
		"priority": func() stringQueue { return newPriorityQueue(priorityqueue.Config[string]{}) },
	} {
		t.Run("queue="+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				var since []time.Duration
				var last []bool
				p := worker.New(q, func(ctx context.Context, _ string) error {
					call := worker.CallOf(ctx)
					at := call.FailingSince()
					if at.IsZero() != (call.Attempt() == 1) {
						t.Errorf("attempt %d fails since %v", call.Attempt(), at)
					}
					if !at.IsZero() {
						since = append(since, time.Since(at))
					}
					last = append(last, call.LastAttempt())
					return errBroken
				}, options{RetryFor: time.Minute})
				r := run(t, p)
				q.Add("a")
				r.after(time.Hour)
				s := p.Stats()
				if n := len(last); n < 3 || !last[n-1] || last[n-2] || s.GivenUp != 1 || s.Failed != uint64(n) {
					t.Errorf("last attempts %v, %+v", last, s)
				}
				if n := len(since); n < 2 || since[n-1] <= time.Minute || since[n-2] > time.Minute {
					t.Errorf("failing for %v", since)
				}
				r.endCleanly()
			})
		})
	}
	if err := worker.New(newQueue(), fine, options{RetryFor: -1}).Run(t.Context()); err == nil {
		t.Error("a negative RetryFor is not refused")
	}
}
