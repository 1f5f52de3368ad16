package worker_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

// blockingDone is a queue whose Done of a key that begins with "blocked" does not return.
type blockingDone struct {
	extended
	open chan struct{}
}

func (q blockingDone) Done(key string) {
	if strings.HasPrefix(key, "blocked") {
		<-q.open
	}
	q.extended.Done(key)
}

// Run does not wait for a Done that blocks: that of a key on hold, or of a key that was got too late.
func TestRunDoesNotWaitForDone(t *testing.T) {
	for _, drain := range []worker.Drain{worker.Running, worker.All} {
		synctest.Test(t, func(t *testing.T) {
			q := blockingDone{newQueue(), make(chan struct{})}
			addAll(q, "blocked fine")
			r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
				return holds(ctx, "it", 100*time.Hour, func(func()) {})
			}, options{Drain: drain, DrainTimeout: time.Second}))
			r.cancel()
			r.after(3 * time.Second)
			if p := r.runner.(*worker.Pool[string]); r.returned() != nil || !slices.Contains(p.Left().Unfinished, "blocked") {
				t.Errorf("left: %v", p.Left())
			}
			close(q.open)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := blockingDone{newQueue(), make(chan struct{})}
		q.Add("blocked")
		r := run(t, worker.New(lateQueue{q}, fine, options{}))
		r.cancel()
		r.after(40 * time.Second) // Longer than DrainTimeout.
		r.returnedLeaving("1 still running: blocked")
		close(q.open)
	})
	synctest.Test(t, func(t *testing.T) { // Run already waits for the worker, which gets the key a second later.
		q := blockingDone{newQueue(), make(chan struct{})}
		q.Add("blocked")
		r := run(t, worker.New(slowGet{lateQueue{q}}, fine,
			options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}))
		r.cancel()
		r.after(2 * time.Second)
		r.returnedLeaving("1 still running: blocked")
		close(q.open)
	})
}

// A key that one pool holds or interrupts, and another answers, leaves no trace in the first.
func TestOldestUnansweredOfTwoPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
			Name: "q", MetricsProvider: testkit.Times{},
		})
		var held atomic.Int64
		handle := func(ctx context.Context, _ string) error {
			if held.Add(1) <= 10 {
				return holds(ctx, "it", 10*time.Millisecond, func(func()) {})
			}
			time.Sleep(time.Millisecond)
			return nil
		}
		a, b := worker.New(q, handle, options{Workers: 2, KeepQueue: true}),
			worker.New(q, handle, options{Workers: 2, KeepQueue: true})
		runs := []*running{run(t, a), run(t, b)}
		addNumbers(q, 10)
		runs[0].after(24 * time.Hour)
		for _, p := range []*worker.Pool[string]{a, b} {
			if st := p.Stats(); st.OldestUnanswered != 0 || st.Handled == 0 {
				t.Errorf("%v, %d calls", st.OldestUnanswered, st.Handled)
			}
		}
		for _, r := range runs {
			_ = r.end()
		}
		q.ShutDown()
	})
}

// The longest period does not overflow.
func TestLongestPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		const n = 3000
		addNumbers(q, n)
		p := worker.New(q, answers(worker.Every(math.MaxInt64)), options{})
		r := run(t, p)
		r.after(time.Hour)
		if st := p.Stats(); st.Handled != n {
			t.Errorf("%d calls of %d keys", st.Handled, n)
		}
		r.endCleanly()
	})
}

// A given-up key whose next call puts it on hold is not listed any more.
func TestGivenUpThenHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		calls := 0
		p := worker.New(q, func(ctx context.Context, _ string) error {
			if calls++; calls == 1 {
				return worker.Terminal(errBroken)
			}
			return holds(ctx, "it", time.Hour, func(func()) {})
		}, options{})
		r := run(t, p)
		q.Add("a")
		synctest.Wait()
		if s := p.Snapshot(9); len(s.GivenUp) != 0 || len(s.OnHold) != 1 {
			t.Errorf("%+v", s)
		}
		_ = r.end()
	})
}

// The Stats with Ended are the last ones, and no worker is busy that does not live.
func TestStatsWithEndedAreTheLast(t *testing.T) {
	for range 300 {
		q := newQueue()
		const n = 20
		addNumbers(q, n)
		q.ShutDown()
		p := worker.New(q, fine, options{Workers: 3})
		ended := make(chan worker.Stats)
		go func() {
			for i := 0; ; i++ {
				s := p.Stats()
				if s.Busy > s.Living {
					t.Errorf("%d busy of %d", s.Busy, s.Living)
				}
				if s.Ended {
					ended <- s
					return
				}
				if i%3 == 0 {
					runtime.Gosched()
				}
			}
		}()
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if s := <-ended; s.Handled != n || s.Busy != 0 {
			t.Fatalf("%d calls, %d busy", s.Handled, s.Busy)
		}
	}
}
