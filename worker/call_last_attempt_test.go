package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// A handler knows that it is the last attempt.
func TestLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var last []bool
		p := worker.New(q, func(ctx context.Context, _ string) error {
			last = append(last, worker.CallOf(ctx).LastAttempt())
			return errBroken
		}, options{MaxRetries: 2})
		q.Add("a")
		r := run(t, p)
		r.after(100 * time.Millisecond)
		r.after(1100 * time.Millisecond)
		q.Add("a") // Within the delay: the second attempt again.
		r.after(time.Minute)
		equal(t, "last", last, false, false, false, true)
		if st := p.Stats(); st.GivenUp != 1 {
			t.Errorf("%+v", st)
		}
		r.endCleanly()
	})
	if worker.CallOf(t.Context()).LastAttempt() {
		t.Error("the last attempt of no call")
	}
}

// After the pool has ended the call's context, an error is no failure, so it gives no key up.
func TestLastAttemptAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var last []bool
		p := worker.New(q, func(ctx context.Context, _ string) error {
			last = append(last, worker.CallOf(ctx).LastAttempt())
			<-ctx.Done()
			last = append(last, worker.CallOf(ctx).LastAttempt())
			return ctx.Err()
		}, options{MaxRetries: worker.NoRetries, Drain: worker.Nothing})
		q.Add("a")
		run(t, p).endLeaving("1 queued and not started: a")
		equal(t, "last", last, true, false)
	})
}
