package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// wrapper is an error whose nil pointer cannot be unwrapped.
type wrapper struct{ within error }

func (*wrapper) Error() string   { return "wrapper" }
func (w *wrapper) Unwrap() error { return w.within }

// The methods of a handler's error are its code, too: what they do is the failure of its key, and not of the pool.
func TestPanicOfTheErrorFailsTheKey(t *testing.T) {
	for name, bad := range map[string]error{
		"wrapper":           (*wrapper)(nil),
		"Requeue":           (*worker.Requeue)(nil),
		"RequeueAfterError": (*worker.RequeueAfterError)(nil),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				calls := 0
				q.Add("a")
				r := run(t, worker.New(q, func(context.Context, string) error {
					if calls++; calls == 1 {
						return bad
					}
					return nil
				}, options{}))
				r.after(time.Second)
				if calls != 2 {
					t.Errorf("%d calls", calls)
				}
				r.endCleanly()
			})
		})
	}
}

// forgetPanics is a limiter whose Forget panics.
type forgetPanics struct {
	workqueue.TypedRateLimiter[string]
}

func (forgetPanics) Forget(string) { panic("forget") }

// The key was to come again. It is in the queue when the limiter panics, and so it is reported.
func TestPanicOfForgetKeepsTheRequeuedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, _ stringQueue) {
		q := workqueue.NewTypedRateLimitingQueue[string](forgetPanics{workqueue.NewTypedMaxOfRateLimiter[string]()})
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error { return worker.RequeueAfter(0) }, options{}))
		err := r.returned()
		var p *worker.PanicError
		if !errors.As(err, &p) || p.Value != "forget" || !slices.Equal(left(t, err).NotStarted, []string{"a"}) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// slowRequeues is a limiter whose NumRequeues takes a second, as one that asks a server may.
type slowRequeues struct {
	workqueue.TypedRateLimiter[string]
}

func (l slowRequeues) NumRequeues(key string) int {
	time.Sleep(time.Second)
	return l.TypedRateLimiter.NumRequeues(key)
}

// A queue that is slow to say which of its failing keys are forgotten does not keep Run from ending.
func TestSlowNumRequeuesDoesNotDelayTheEnd(t *testing.T) {
	for name, end := range map[string]time.Duration{"between sweeps": 30 * time.Second, "during a sweep": 80 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.NewTypedRateLimitingQueue[string](slowRequeues{
					workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)})
				for i := range 100 {
					q.Add(fmt.Sprint(i))
				}
				r := run(t, worker.New(q, func(context.Context, string) error { return errBroken }, options{Workers: 100}))
				r.after(end)
				begun := time.Now()
				if got := left(t, r.end()).Failing; len(got) != 100 {
					t.Errorf("%d keys are left failing", len(got))
				}
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("Run took %v to end", took)
				}
			})
		})
	}
}

// brokenTimers is a clock whose timers panic.
type brokenTimers struct{ clock.Clock }

func (c brokenTimers) NewTimer(d time.Duration) clock.Timer { return brokenTimer{c.Clock.NewTimer(d)} }

type brokenTimer struct{ clock.Timer }

func (brokenTimer) C() <-chan time.Time { panic("timer") }

// The timer of a HandlerTimeout panics in a goroutine of its own. That ends Run, as any panic of the clock does, and
// the handler's context, and the key gets its Done.
func TestPanicOfTheTimerIsFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		var ctxErr error
		r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			ctxErr = ctx.Err()
			return nil
		}, options{Clock: brokenTimers{clock.RealClock{}}, HandlerTimeout: time.Hour}))
		var p *worker.PanicError
		if err := r.returned(); !errors.As(err, &p) || p.Value != "timer" || ctxErr == nil {
			t.Errorf("Run returned %v, the handler's context ended with %v", err, ctxErr)
		}
		wantMatchedDones(t, q)
	})
}

// panickyProvider is a provider of metrics, and a handler of logs, that panics when Run begins.
type panickyProvider struct{ workqueue.MetricsProvider }

func (panickyProvider) WatchPool(string, func() worker.Stats) { panic("begin") }

type panickyLogs struct{ slog.Handler }

func (panickyLogs) WithAttrs([]slog.Attr) slog.Handler { panic("begin") }

// Foreign code that panics when Run begins is fatal, too. What was queued is reported.
func TestPanicAtTheBeginningIsFatal(t *testing.T) {
	for name, o := range map[string]options{
		"provider": {Name: "pool", MetricsProvider: panickyProvider{}},
		"logger":   {Name: "pool", Logger: slog.New(panickyLogs{slog.DiscardHandler})},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				q.Add("a")
				err := run(t, worker.New(q, func(context.Context, string) error { return nil }, o)).returned()
				var p *worker.PanicError
				if !errors.As(err, &p) || p.Value != "begin" || !slices.Equal(left(t, err).NotStarted, []string{"a"}) {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// brokenLeases is a queue whose Lease panics.
type brokenLeases struct{ stringQueue }

func (brokenLeases) Lease(context.Context, string) (context.Context, context.CancelFunc) {
	panic("lease")
}

// A Lease that panics costs no key its Done, and leaves no timer of a HandlerTimeout.
func TestPanicOfLeaseIsFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		err := run(t, worker.New(brokenLeases{q}, func(context.Context, string) error { return nil }, options{
			Clock: otherClock{clock.RealClock{}}, HandlerTimeout: time.Hour,
		})).returned()
		var p *worker.PanicError
		if !errors.As(err, &p) || p.Value != "lease" || !slices.Equal(left(t, err).NotStarted, []string{"a"}) {
			t.Errorf("Run returned %v", err)
		}
		wantMatchedDones(t, q)
	})
}

// otherClock is a clock that the context package does not know.
type otherClock struct{ clock.Clock }
