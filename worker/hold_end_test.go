package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func TestHoldToLimit(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		h.answers = []answer{h.hold(time.Minute)}
		logger, logs := newLogger()
		p := worker.New(q, h.handle, options{Logger: logger})
		r := run(t, p)
		q.Add("a")
		r.after(2 * time.Minute)
		if st := p.Stats(); st.HoldsToLimit != 1 || st.OnHold != 0 {
			t.Errorf("%+v", st)
		}
		if want := `level=WARN msg="A key was on hold to its limit" key=a limit=1m0s reason="it is ready"`; !strings.Contains(logs.String(), want) {
			t.Errorf("logged:\n%s", logs)
		}
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 1m0s")
	})
}

// A release before the handler has returned is not lost, whether or not Hold has returned.
func TestHoldReleasedEarly(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		h.answers = []answer{func(call worker.Call) error {
			call.Hold("now", time.Minute)()
			return worker.RequeueAfter(0)
		}, func(call worker.Call) error {
			defer h.releaseAll()
			return h.hold(time.Minute)(call)
		}}
		r := run(t, worker.New(q, h.handle, options{}))
		q.Add("a")
		r.after(time.Second)
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 0s", "a 1 0s")
	})
}

// Remove takes back all adds, Cancel finds no call, Forget changes nothing, and Release ends the hold.
func TestHeldKeyIsRemovedCanceledForgottenReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		h.answers = []answer{h.hold(time.Minute), h.hold(time.Minute), h.hold(time.Minute)}
		q := newPriorityQueue(priorityqueue.Config[string]{})
		p := worker.New(q, h.handle, options{})
		r := run(t, p)
		addAll(q, "removed twice forgotten")
		r.after(time.Second)
		q.Remove("removed")
		q.Remove("twice")
		q.Add("twice")
		p.Forget("forgotten")
		if p.Cancel("forgotten") {
			t.Error("Cancel has found a call")
		}
		if p.Release("nobody") {
			t.Error("Release has found a hold")
		}
		r.after(2 * time.Second)
		if !p.Release("forgotten") || p.Release("forgotten") {
			t.Error("Release")
		}
		r.after(2 * time.Minute)
		r.endCleanly()
		equal(t, "calls", h.took(), "removed 1 0s", "twice 1 0s", "forgotten 1 0s", "forgotten 1 2s",
			"twice 1 1m0s")
	})
}

// The end of its lease releases a key.
func TestHoldEndsWithLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		leases := 0
		q := leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, func(cancel context.CancelCauseFunc) {
			if leases++; leases == 2 { // that of the hold
				time.AfterFunc(time.Second, func() { cancel(errLeaseLost) })
			}
		}}
		h := newHolder()
		h.answers = []answer{h.hold(time.Hour)}
		p := worker.New(q, h.handle, options{})
		r := run(t, p)
		q.Add("a")
		r.after(time.Minute)
		if st := p.Stats(); st.HoldsToLimit != 0 {
			t.Errorf("%+v", st)
		}
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 1s")
		equal(t, "leases", j.take(), "add a", "lease a", "add a", "release a", "lease a", "release a", "done a",
			"lease a", "release a", "done a")
	})
}

// A key whose lease is lost is not put on hold: another process may have it.
func TestHoldAfterTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var loseLease context.CancelCauseFunc
		q := leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j,
			func(cancel context.CancelCauseFunc) { loseLease = cancel }}
		p := worker.New(q, func(ctx context.Context, key string) error {
			worker.CallOf(ctx).Hold("the world", time.Hour)
			loseLease(errLeaseLost)
			return nil
		}, options{})
		r := run(t, p)
		q.Add("a")
		synctest.Wait()
		equal(t, "leases", j.take(), "add a", "lease a", "release a", "done a")
		if st := p.Stats(); st.HoldDurations != nil || st.OnHold != 0 {
			t.Errorf("%+v", st)
		}
		r.endCleanly()
	})
}

// oneLease is a queue with one lease for all its keys, which counts what waits for its end.
type oneLease struct {
	leasedQueue
	waiting *atomic.Int64
}

func (q oneLease) LeaseOnHold(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
	return countingContext{ctx, q.waiting}, func() {}
}

type countingContext struct {
	context.Context
	waiting *atomic.Int64
}

func (countingContext) Done() <-chan struct{} { return make(chan struct{}) }
func (c countingContext) AfterFunc(func()) (stop func() bool) {
	c.waiting.Add(1)
	return func() bool { c.waiting.Add(-1); return true }
}

// A hold that has ended keeps no memory in a lease that outlives it.
func TestHoldLeavesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		q := oneLease{leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, nil}, new(atomic.Int64)}
		h := newHolder()
		h.answers = []answer{h.hold(time.Hour), h.hold(2 * time.Hour)}
		r := run(t, worker.New(q, h.handle, options{}))
		q.Add("a")
		q.Add("b")
		r.after(time.Second)
		if n := q.waiting.Load(); n != 2 {
			t.Errorf("%d holds wait for the end of their lease, want 2", n)
		}
		r.after(3 * time.Hour)
		if n := q.waiting.Load(); n != 0 {
			t.Errorf("%d holds that have ended wait for the end of their lease", n)
		}
		r.endCleanly()
	})
}

// asked is a queue on a server that counts how often it is asked for a key.
type asked struct {
	answeringQueue
	times *int
}

func (q asked) SnapshotKey(key string) (workqueue.KeySnapshot[string], bool) {
	*q.times++
	return workqueue.KeySnapshot[string]{}, false
}

// Somebody else has shut down a queue on a server: it hands out no more, so Run does not wait for holds. And
// Stats do not ask the server for a key.
func TestHoldOverAServerAfterItsShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		settle := func(context.Context) ([]string, error) { return nil, nil }
		inner := newPriorityQueue(priorityqueue.Config[string]{Name: "q", MetricsProvider: testkit.Times{}})
		answering := answeringQueue{leasedQueue{leasing.UnimplementedLeaser[string]{}, inner, &j, nil}, settle}
		q := asked{answering, new(int)}
		h := newHolder()
		h.answers = []answer{h.hold(time.Hour), func(worker.Call) error { return worker.RetryAfter(errBroken, time.Hour) }}
		p := worker.New(q, h.handle, options{})
		r := run(t, p)
		q.Add("a")
		r.after(time.Second)
		q.Add("b")
		synctest.Wait()
		if p.Stats(); *q.times != 0 {
			t.Errorf("Stats asked for a key %d times", *q.times)
		}
		q.Add("a")
		q.ShutDown()
		r.after(time.Second)
		if err := r.returned(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// slowRelease is a queue that takes a while to take a lease back.
type slowRelease struct {
	leasing.UnimplementedLeaser[string]
	extended
}

func (q slowRelease) LeaseOnHold(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	return q.Lease(ctx, key)
}

func (slowRelease) Lease(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, func() {
		time.Sleep(2 * time.Millisecond)
		cancel()
	}
}

// A hold that is released at once is an interruption, even if the queue takes longer to make its key Done.
func TestHoldReleasedAtOnceWithSlowLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		q := slowRelease{extended: newQueue()}
		q.Add("a")
		p := worker.New(q, func(ctx context.Context, _ string) error {
			calls.Add(1)
			return holds(ctx, "it has happened", time.Minute, func(release func()) { release() })
		}, options{})
		r := run(t, p)
		r.after(time.Minute)
		if n, st := calls.Load(), p.Stats(); n > 30 || st.Looping != 1 {
			t.Errorf("%d calls, %+v", n, st)
		}
		_ = r.end()
	})
}

// Releases, limits, adds and the end come at the same time: each key that was handed out is Done once.
func TestHoldRace(t *testing.T) {
	for range 20 {
		q := newQueue()
		var wg sync.WaitGroup
		p := worker.New(q, func(ctx context.Context, key string) error {
			until := func(release func()) {
				for range 2 {
					wg.Go(release)
				}
			}
			until(worker.CallOf(ctx).Hold("", time.Microsecond))
			return holds(ctx, "", 50*time.Microsecond, until)
		}, options{Workers: 4})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- p.Run(ctx) }()
		for i := range 200 {
			q.Add(fmt.Sprint(i % 10))
			p.Release(fmt.Sprint(i % 7))
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		wg.Wait()
		wantMatchedDones(t, q)
	}
}

// callOnHold makes a call for a, which arranges a hold, and calls Done.
func callOnHold(t *testing.T, b *worker.Tracker[string], limit time.Duration, done func()) {
	c := b.Begin(t.Context(), "a")
	worker.CallOf(c.Context()).Hold("it", limit)
	c.End(nil)
	c.Done(done)
}

// A key may be held again while the Done of its last hold is still running. Both holds end at their limits.
func TestHoldDuringDoneOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := worker.NewTracker(newQueue(), options{})
		var first, second atomic.Int64 // when their Dones were called
		begun := time.Now()
		callOnHold(t, b, time.Minute, func() {
			first.Store(int64(time.Since(begun)))
			callOnHold(t, b, time.Minute, func() { second.Store(int64(time.Since(begun))) })
		})
		time.Sleep(time.Hour)
		if first.Load() != int64(time.Minute) || second.Load() != int64(2*time.Minute) || b.Stats().OnHold != 0 {
			t.Errorf("Done after %v and %v, %d held", time.Duration(first.Load()), time.Duration(second.Load()),
				b.Stats().OnHold)
		}
	})
}

// After EndHolds no key is put on hold.
func TestHoldAfterEndHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := worker.NewTracker(newQueue(), options{})
		b.EndHolds()
		done := false
		callOnHold(t, b, time.Minute, func() { done = true })
		if st := b.Stats(); !done || st.OnHold != 0 {
			t.Errorf("done: %v, %d on hold", done, st.OnHold)
		}
	})
}

// blockingClock is a clock whose Now waits for what it gets from the channel, if there is one.
type blockingClock struct {
	clock.RealClock
	block atomic.Pointer[chan struct{}]
}

func (c *blockingClock) Now() time.Time {
	if block := c.block.Load(); block != nil {
		<-*block
	}
	return time.Now()
}

// A release that takes a while does not end what the same call arranges meanwhile.
func TestReleaseDuringNextHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &blockingClock{}
		b := worker.NewTracker(newQueue(), options{Clock: c})
		call := b.Begin(t.Context(), "a")
		release := worker.CallOf(call.Context()).Hold("the first", time.Minute)
		block := make(chan struct{})
		c.block.Store(&block)
		go release()
		synctest.Wait()
		c.block.Store(nil)
		worker.CallOf(call.Context()).Hold("the second", time.Minute)
		call.End(nil)
		var done atomic.Bool
		call.Done(func() { done.Store(true) })
		close(block)
		synctest.Wait()
		if s := b.Stats(); done.Load() || s.OnHold != 1 {
			t.Errorf("done: %v, %d on hold", done.Load(), s.OnHold)
		}
		time.Sleep(time.Hour)
		if s := b.Stats(); !done.Load() || s.HoldsToLimit != 1 {
			t.Errorf("done: %v, %+v", done.Load(), s)
		}
	})
}

// slowPutOnHold is a queue whose PutOnHold takes a second.
type slowPutOnHold struct{ extended }

func (q slowPutOnHold) PutOnHold(key string) {
	time.Sleep(time.Second)
	q.extended.PutOnHold(key)
}

// A hold that comes to its limit while it begins does not begin.
func TestHoldToLimitWhileItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := slowPutOnHold{newQueue()}
		p := worker.New(q, func(ctx context.Context, _ string) error {
			worker.CallOf(ctx).Hold("it is ready", time.Second/2)
			return nil
		}, options{})
		r := run(t, p)
		q.Add("a")
		r.after(2 * time.Second)
		if held(q.extended) != 0 || p.Stats().OnHold != 0 {
			t.Errorf("%d keys are held, %+v", held(q.extended), p.Stats())
		}
		r.endCleanly()
	})
}
