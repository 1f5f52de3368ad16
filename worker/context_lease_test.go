package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// leasedQueue is a queue with leases.
type leasedQueue struct {
	leasing.UnimplementedLeaser[string]
	extended
	j      *journal
	leased func(cancel context.CancelCauseFunc)
}

var errLeaseLost = errors.New("lost")

type leaseOf struct{}

func (q leasedQueue) LeaseOnHold(ctx context.Context, key string) (context.Context, context.CancelFunc) {
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

func (q leasedQueue) Add(key string) { q.j.add("add " + key); q.extended.Add(key) }

func (q leasedQueue) AddAfter(key string, d time.Duration) {
	q.j.add("add " + key)
	q.extended.AddAfter(key, d)
}
func (q leasedQueue) Done(key string) { q.j.add("done " + key); q.extended.Done(key) }

// A handler's context is that of the key's lease, also with a HandlerTimeout, and ends when the lease is
// lost. The lease is released before Done.
func TestLease(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			q := leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, func(cancel context.CancelCauseFunc) {
				time.AfterFunc(time.Second, func() { cancel(errLeaseLost) })
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

// Nothing that a call answers counts when its lease has ended: the key has another holder. A call that fails
// by HandlerTimeout fails.
func TestAnswerAfterTheLease(t *testing.T) {
	for _, answer := range []error{nil, errBroken, worker.RequeueAfter(0), worker.RequeueAfter(time.Minute),
		worker.RetryAfter(errBroken, time.Minute), worker.Terminal(errBroken), worker.ErrAdded, context.Canceled} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) { testAnswerAfterTheLease(t, answer) })
	}
}

func testAnswerAfterTheLease(t *testing.T, answer error) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		calls := 0
		q := leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, func(cancel context.CancelCauseFunc) {
			if calls++; calls == 1 {
				time.AfterFunc(time.Second, func() { cancel(errLeaseLost) })
			}
		}}
		logger, logs := newLogger()
		var ends []worker.Next
		p := worker.New(q, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return answer
		}, options{MaxRetries: worker.NoRetries, HandlerTimeout: time.Minute, Logger: logger,
			OnFinish: func(_ context.Context, r outcome) { ends = append(ends, r.Next) }})
		r := run(t, p)
		q.Add("a")
		r.after(2 * time.Second)
		equal(t, "got", j.take(), "add a", "lease a", "release a", "done a")
		if n := q.extended.Failures("a").Count; n != 0 || p.Stats().Interrupted != 1 || len(p.Snapshot(9).Failing) != 0 {
			t.Errorf("%d failures, %+v", n, p.Snapshot(9))
		}
		if want := `level=WARN msg="The key's lease ended before the handler returned, its answer is ignored" key=a`; !strings.Contains(logs.String(), want) {
			t.Errorf("logged:\n%s", logs)
		}
		answer = errBroken
		q.Add("a") // as the server does
		r.after(2 * time.Hour)
		equal(t, "ends", ends, worker.NextLost, worker.NextGiveUp)
		r.endCleanly()
	})
}

// failsWith is a queue whose Fail does nothing but return an error.
type failsWith struct {
	extended
	err error
}

func (q failsWith) Fail(context.Context, string, workqueue.Failure) (workqueue.Retry, error) {
	return workqueue.Retry{Attempt: 1}, q.err
}

// A lease that the queue finds lost in Fail is lost. If the queue's server does not answer, the delay is not
// known.
func TestFailThatFails(t *testing.T) {
	for _, c := range []struct {
		answer, err error
		want        worker.Next
		failed      uint64
	}{
		{worker.Terminal(errBroken), leasing.ErrLost, worker.NextLost, 0},
		{errors.Join(errBroken, worker.RequeueAfter(-time.Second)), errors.New("no answer"), worker.NextRetry, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := failsWith{newQueue(), c.err}
			q.Add("a")
			var got outcome
			p := worker.New(q, answers(c.answer), options{OnFinish: func(_ context.Context, r outcome) { got = r }})
			r := run(t, p)
			if got.Next != c.want || got.After != 0 {
				t.Errorf("%+v", got)
			}
			if st := p.Stats(); st.Failed != c.failed || st.GivenUpKeys != 0 || st.RetryDelays != nil {
				t.Errorf("%+v", st)
			}
			r.endCleanly()
		})
	}
}

// slowLeasedQueue is a queue with leases that takes a moment to take a key back.
type slowLeasedQueue struct{ leasedQueue }

func (q slowLeasedQueue) AddAfter(key string, d time.Duration) {
	time.Sleep(50 * time.Millisecond)
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
			equal(t, "got", slices.DeleteFunc(slices.Clone(got),
				func(line string) bool { return line == "shut down" }),
				"add a", "lease a", "add a", "release a", "done a")
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

// answeringQueue is a queue with leases that takes answers. They change nothing here.
type answeringQueue struct {
	leasedQueue
	settle func(ctx context.Context) ([]string, error)
}

func (q answeringQueue) Succeed(key string) { q.j.add("succeed " + key) }
func (q answeringQueue) Requeue(key string, priority int, after time.Duration) {
	q.j.add(fmt.Sprint("requeue ", key, " ", after))
}
func (q answeringQueue) HandBack(key string, atOnce int) {
	q.j.add(fmt.Sprint("hand back ", key, " ", atOnce))
}
func (q answeringQueue) Settle(ctx context.Context) ([]string, error) { return q.settle(ctx) }

// Next hands keys out as if three calls for each had been interrupted by the ends of processes.
func (q answeringQueue) Next(ctx context.Context) (workqueue.HandOut[string], error) {
	h, err := q.leasedQueue.Next(ctx)
	h.AtOnce = 3
	return h, err
}

// Of a queue that takes answers the pool uses each of them. At its end it waits until the server knows them,
// and says what the server may not know.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		said   string
	}{
		"nil":            {nil, "succeed a"},
		"requeue":        {worker.RequeueAfter(time.Minute), "requeue a 1m0s"},
		"requeue now":    {worker.RequeueAfter(0), "requeue a 0s"},
		"interrupted":    {context.Canceled, "hand back a 4"},
		"end by failure": {errBroken, "hand back a 4"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				settled := make(chan struct{})
				q := answeringQueue{leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, nil}, func(ctx context.Context) ([]string, error) {
					<-ctx.Done()
					close(settled)
					return []string{"a"}, errBroken
				}}
				logger, logs := newLogger()
				interrupts := strings.HasPrefix(c.said, "hand back")
				p := worker.New(q, func(ctx context.Context, _ string) error {
					if interrupts {
						<-ctx.Done()
					}
					return c.answer
				}, options{Logger: logger, DrainTimeout: time.Second, CancelGrace: time.Minute, KeepQueue: true})
				r := run(t, p)
				q.Add("a")
				r.after(time.Second)
				r.cancel()
				r.after(30 * time.Second)
				r.goesOn()
				r.after(2 * time.Minute)
				<-settled
				if err := r.returned(); err != nil {
					t.Errorf("Run returned %v", err)
				}
				equal(t, "got", j.take(), "add a", "lease a", c.said, "release a", "done a")
				equal(t, "unfinished", p.Left().Unfinished, "a")
				if !strings.Contains(logs.String(), "may not know how the last calls have ended") {
					t.Errorf("logged:\n%s", logs)
				}
			})
		})
	}
}

// What a server has taken after the shutdown is not left undone.
func TestRequeueAfterTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settle := func(context.Context) ([]string, error) { return nil, nil }
		q := answeringQueue{leasedQueue{extended: newQueue(), j: new(journal)}, settle}
		r := run(t, worker.New(q, func(context.Context, string) error {
			q.ShutDown()
			return worker.RequeueAfter(0)
		}, options{}))
		q.Add("a")
		synctest.Wait()
		r.endCleanly()
	})
}
