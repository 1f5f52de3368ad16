package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A handler that gives up because DrainTimeout has ended its context has not used up its last attempt: the
// key is reported, not dropped. Answers that do not depend on the context count as always.
func TestInterruptedLastAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		q.Add("interrupted")
		q.Add("terminal")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if worker.Attempt(ctx) == 1 {
				return errBroken
			}
			<-ctx.Done()
			if key == "terminal" {
				return worker.Terminal(errBroken)
			}
			return ctx.Err()
		}, options{Workers: 2, MaxRetries: 1, DrainTimeout: time.Second, CancelGrace: time.Second,
			OnDrop: func(_ context.Context, r outcome) { j.add(fmt.Sprint(r.Key, " ", r.Err)) }}))
		r.after(2 * time.Second)
		if e := left(t, r.end()); !slices.Equal(e.Failing, []string{"interrupted"}) || e.Unfinished != nil {
			t.Errorf("left: %+v", e)
		}
		if got := j.take(); !slices.Equal(got, []string{"terminal broken"}) {
			t.Errorf("dropped: %q", got)
		}
	})
}

// A key whose handler wants it again at once, while the queue takes none back, is reported: unless it was
// added before, and comes again all the same.
func TestRequeueAfterTheShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		for _, key := range []string{"again", "at once", "before", "added"} {
			q.Add(key)
		}
		calls := make(map[string]int)
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			calls[key]++
			if key == "again" && calls[key] == 1 {
				q.Add("again")
				time.Sleep(time.Second)
				return worker.RequeueAfter(0)
			}
			if key == "at once" {
				return worker.RequeueAfter(0)
			}
			if key == "before" {
				return fmt.Errorf("soon: %w", worker.RequeueAfter(-time.Second))
			}
			if worker.Attempt(ctx) != 1 {
				t.Errorf("%s: attempt %d", key, worker.Attempt(ctx))
			}
			return nil
		}, options{Drain: worker.All}))
		r.cancel()
		r.after(time.Second)
		e := left(t, r.returned())
		if !slices.Equal(e.NotStarted, []string{"at once", "before"}) || e.Failing != nil || e.Unfinished != nil || calls["again"] != 2 {
			t.Errorf("left: %+v, calls: %v", e, calls)
		}
	})
}

// slowDone is a queue whose Done takes long.
type slowDone struct{ stringQueue }

func (q slowDone) Done(key string) {
	time.Sleep(time.Hour)
	q.stringQueue.Done(key)
}

// Neither Run nor the watcher waits for the Done of somebody else's queue, and its key is neither
// unfinished nor stuck.
func TestDoneThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		r := run(t, worker.New(slowDone{q}, func(context.Context, string) error {
			time.Sleep(2 * time.Second)
			return nil
		}, options{DrainTimeout: time.Second, CancelGrace: worker.NoGrace, StuckAfter: 5 * time.Second,
			OnStuck: func(_ context.Context, s stuck) { t.Errorf("%s is stuck", s.Key) }}))
		r.after(30 * time.Second)
		r.cancel()
		r.after(31 * time.Second)
		if err := r.returned(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		r.after(2 * time.Hour)
		wantMatchedDones(t, q)
	})
}

func TestDrainNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != context.Canceled {
				t.Errorf("the cause is %v", cause)
			}
			time.Sleep(time.Second)
			return nil
		}, options{Drain: worker.Nothing, CancelGrace: time.Minute, Clock: testingclock.NewFakeClock(time.Now())}))
		r.cancel()
		r.after(time.Second)
		if err := r.returned(); err != nil {
			t.Error(err)
		}
	})
}

// NoGrace needs no timer.
func TestNoGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("1m")
		r := run(t, worker.New(q, sleeper(new(journal)),
			options{Drain: worker.Nothing, CancelGrace: worker.NoGrace, Clock: testingclock.NewFakeClock(time.Now())}))
		r.cancel()
		if e := left(t, r.returned()); !slices.Equal(e.Unfinished, []string{"1m"}) {
			t.Errorf("left: %+v", e)
		}
		r.after(time.Minute)
	})
}

// With very many keys the log gets their number, and a few of them.
func TestLogOfManyKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		const n = 10_000
		for i := range n {
			q.Add(fmt.Sprint("namespace/name-", i))
		}
		logger, logs := newLogger()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var left worker.Left[string]
		err := worker.Run(ctx, q, sleeper(new(journal)), options{Logger: logger, OnLeft: func(l worker.Left[string]) { left = l }})
		if err != nil || len(left.NotStarted) != n || len(logs.String()) > 1000 {
			t.Errorf("Run returned %v, %d keys, %d bytes logged", err, len(left.NotStarted), len(logs.String()))
		}
	})
}

// stoppingLog is a slog.Handler that stops a pool when the pool gives it attributes.
type stoppingLog struct {
	slog.Handler
	stop func()
}

func (l stoppingLog) WithAttrs([]slog.Attr) slog.Handler { l.stop(); return l }

// stoppingKey stops a pool when it is asked for its text.
type stoppingKey struct{ stop func() }

func (k *stoppingKey) String() string { k.stop(); return "key" }

// The pool calls loggers and the texts of keys without its lock, so these may call the pool.
func TestForeignCodeMayCallThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *worker.Pool[*stoppingKey]
		stop := func() { p.Stop(worker.Running) }
		q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[*stoppingKey](time.Second, time.Hour))
		q.Add(&stoppingKey{stop})
		p = worker.New(q, func(context.Context, *stoppingKey) error { return errBroken },
			worker.Options[*stoppingKey]{})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- p.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-result; err != nil || p.Left().String() != "1 failed and not retried: key" {
			t.Errorf("Run returned %v, left: %v", err, p.Left())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var p *worker.Pool[string]
		stop := func() { p.Stop(worker.Running) }
		p = worker.New(newQueue(), sleeper(new(journal)), options{Name: "q", Logger: slog.New(stoppingLog{slog.DiscardHandler, stop})})
		if err := run(t, p).returned(); err != nil {
			t.Error(err)
		}
	})
}

// slowLimiter takes a minute to say when a key comes again.
type slowLimiter struct {
	workqueue.TypedRateLimiter[string]
}

func (slowLimiter) When(string) time.Duration { time.Sleep(time.Minute); return time.Second }

// A Result has the time that the handler took, without what came after it.
func TestDurationIsTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue[string](slowLimiter{workqueue.NewTypedMaxOfRateLimiter[string]()})
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Second)
			return errBroken
		}, options{OnFinish: func(_ context.Context, r outcome) {
			if r.Duration != time.Second {
				t.Errorf("the handler took %v", r.Duration)
			}
		}}))
		r.after(10 * time.Second)
		r.cancel()
		<-r.result
		r.after(2 * time.Minute)
	})
}
