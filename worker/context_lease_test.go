package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// leasedQueue is a queue with leases.
type leasedQueue struct {
	leasing.UnimplementedLeaser[string]
	stringQueue
	j      *journal
	leased func(cancel context.CancelCauseFunc)
}

var errLeaseLost = errors.New("lost")

type leaseOf struct{}

func (leasedQueue) Facts() []operate.Fact { return nil }
func (leasedQueue) Below() any            { return nil }

func (q leasedQueue) LeaseHeld(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	return q.Lease(ctx, key)
}

func (q leasedQueue) Lease(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	q.j.add("lease " + key)
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, leaseOf{}, key))
	if q.leased != nil {
		q.leased(cancel)
	}
	return ctx, func() { q.j.add("release " + key); cancel(nil) }
}

func (q leasedQueue) Add(key string) { q.j.add("add " + key); q.stringQueue.Add(key) }

func (q leasedQueue) AddAfter(key string, d time.Duration) {
	q.j.add("add " + key)
	q.stringQueue.AddAfter(key, d)
}
func (q leasedQueue) Done(key string) { q.j.add("done " + key); q.stringQueue.Done(key) }

// A handler's context is that of the key's lease, also with a HandlerTimeout, and ends when the lease is
// lost. The lease is released before Done.
func TestLease(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			q := leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, func(cancel context.CancelCauseFunc) {
				time.AfterFunc(time.Second,
					func() { cancel(errLeaseLost) })
			}}
			r := run(t, worker.New(q, func(ctx context.Context, key string) error {
				if got := ctx.Value(leaseOf{}); got != key {
					t.Errorf("the context has the lease of %v", got)
				}
				<-ctx.Done()
				j.add(context.Cause(ctx).Error())
				return nil
			}, options{HandlerTimeout: timeout}))
			q.Add("a")
			r.after(time.Minute)
			got := j.take()
			equal(t, "got", got, "add a", "lease a", "lost", "release a", "done a")
			r.endCleanly()
		})
	}
}

// A call that fails when its lease has ended gives no key up. One that fails by HandlerTimeout or Cancel does.
func TestLeaseThatEndsGivesNoKeyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		calls := 0
		q := leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, func(cancel context.CancelCauseFunc) {
			if calls++; calls == 1 {
				time.AfterFunc(time.Second, func() { cancel(errLeaseLost) })
			}
		}}
		var ends []worker.Next
		r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}, options{MaxRetries: worker.NoRetries, HandlerTimeout: time.Minute,
			OnFinish: func(_ context.Context, r outcome) { ends = append(ends, r.Next) }}))
		q.Add("a")
		r.after(time.Hour)
		if !slices.Equal(ends, []worker.Next{worker.NextRetry, worker.NextGiveUp}) {
			t.Errorf("the calls end with %v", ends)
		}
		r.endCleanly()
	})
}

// slowLeasedQueue is a queue with leases that takes a second to take a key back.
type slowLeasedQueue struct{ leasedQueue }

func (q slowLeasedQueue) AddAfter(key string, d time.Duration) {
	time.Sleep(time.Second)
	q.leasedQueue.AddAfter(key, d)
}
func (q slowLeasedQueue) ShutDown() { q.j.add("shut down"); q.leasedQueue.ShutDown() }

// A key that was got too late to be started goes back to a queue with leases: others handle it. After the
// shutdown a queue takes no key back, so Run waits for that, also if it is in a hurry.
func TestLeaseOfKeyNotStarted(t *testing.T) {
	for _, drain := range []worker.Drain{worker.Running, worker.Nothing} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			var pool *worker.Pool[string]
			q := slowLeasedQueue{leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, func(context.CancelCauseFunc) { pool.Stop(drain) }}}
			pool = worker.New(q, func(context.Context, string) error { j.add("handled"); return nil },
				options{CancelGrace: worker.NoGrace})
			q.Add("a")
			r := run(t, pool)
			r.after(time.Second)
			_ = r.returned()
			got := j.take()
			// Run takes it out again.
			equal(t, "got", slices.DeleteFunc(slices.Clone(got),
				func(line string) bool { return line == "shut down" }),
				"add a", "lease a", "add a", "release a", "done a", "done a")
			if slices.Index(got, "shut down") < 3 {
				t.Errorf("it was put back too late: %q", got)
			}
		})
	}
}

// A key whose lease has ended before it is started belongs to another process: it is not handled, it has not
// failed, and it is Done.
func TestLeaseThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		q := leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, func(cancel context.CancelCauseFunc) { cancel(errLeaseLost) }}
		logger, logs := newLogger()
		p := worker.New(q, broken,
			options{HandlerTimeout: time.Hour, MaxRetries: 5, Logger: logger,
				OnFinish: func(context.Context, outcome) { t.Error("OnFinish") }})
		q.Add("a")
		r := run(t, p)
		equal(t, "got", j.take(), "add a", "lease a", "release a", "done a")
		if st := p.Stats(); st.Handled+st.Failed != 0 || st.Failing != 0 || st.Busy != 0 {
			t.Errorf("%+v", st)
		}
		if !strings.Contains(logs.String(),
			`level=WARN msg="The lease of a key ended before its handler was called" key=a`) {
			t.Errorf("logged:\n%s", logs)
		}
		r.endCleanly()
	})
}
