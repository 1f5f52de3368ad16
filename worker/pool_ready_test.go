package worker_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Run starts no handler before Ready has returned nil. Until then the pool can be stopped in every way.
func TestReady(t *testing.T) {
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		name   string
		ready  func(ctx context.Context) error
		o      options
		at     func(e ending) // 5 s after Run was called
		calls  int
		failed string // what Run returns
		left   string
	}{
		{name: "nil", ready: func(context.Context) error { time.Sleep(10 * time.Second); return nil }, calls: 2,
			left: "nothing"},
		{name: "an error", ready: func(context.Context) error { time.Sleep(10 * time.Second); return errBroken },
			failed: "worker: Options.Ready: broken", left: "2 queued and not started: a, b"},
		{name: "Run's context ends", ready: waits, at: func(e ending) { e.cancel() },
			left: "2 queued and not started: a, b"},
		{name: "Run's context ends, and Ready says what it likes",
			ready: func(ctx context.Context) error { <-ctx.Done(); return errBroken },
			at:    func(e ending) { e.cancel() }, left: "2 queued and not started: a, b"},
		{name: "Run's context ends, and Ready returns nil",
			ready: func(ctx context.Context) error { <-ctx.Done(); return nil },
			at:    func(e ending) { e.cancel() }, left: "2 queued and not started: a, b"},
		{name: "Run's context ends, All", ready: waits, o: options{Drain: worker.All},
			at:   func(e ending) { e.cancel() },
			left: "2 queued and not started: a, b"},
		{name: "Stop(Running)", ready: waits, at: func(e ending) { e.p.Stop(worker.Running) },
			left: "2 queued and not started: a, b"},
		{name: "Stop(Nothing)", ready: waits, at: func(e ending) { e.p.Stop(worker.Nothing) },
			left: "2 queued and not started: a, b"},
		{name: "Stop(All) waits for Ready",
			ready: func(context.Context) error { time.Sleep(10 * time.Second); return nil },
			at:    func(e ending) { e.p.Stop(worker.All) }, calls: 2, left: "nothing"},
		{name: "SetWorkers", ready: func(context.Context) error { time.Sleep(10 * time.Second); return nil },
			at: func(e ending) { setWorkers(e.t, e.p, 2) }, calls: 2, left: "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				addAll(q, "a b")
				var p *worker.Pool[string]
				ready := false
				var calls atomic.Int32
				c.o.Ready = func(ctx context.Context) error {
					err := c.ready(ctx)
					ready = err == nil
					return err
				}
				p = worker.New(q, func(context.Context, string) error {
					if calls.Add(1); !ready {
						t.Error("a handler was called too early")
					}
					return nil
				}, c.o)
				r := run(t, p)
				r.after(5 * time.Second)
				if c.at != nil {
					r.goesOn()
					c.at(ending{r, p, q})
				}
				if c.at == nil || c.calls > 0 { // Otherwise Ready never succeeded, and Run has returned already.
					r.after(10 * time.Second)
					r.cancel()
				}
				text := ""
				if err := r.returned(); err != nil {
					text = err.Error()
				}
				if text != c.failed || p.Left().String() != c.left || int(calls.Load()) != c.calls {
					t.Errorf("Run returned %q, left: %v, %d calls", text, p.Left(), calls.Load())
				}
				wantMatchedDones(t, q)
			})
		})
	}
}

// WaitIdle waits for keys that are queued, held, or wait for their time, failing ones included, and for those
// that they bring.
func TestWaitIdle(t *testing.T) {
	for name, newQueue := range map[string]func() stringQueue{
		"FIFO":     func() stringQueue { return newQueue() },
		"priority": func() stringQueue { return newPriorityQueue(priorityqueue.Config[string]{}) },
	} {
		t.Run("queue="+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				p := worker.New(q, func(ctx context.Context, key string) error {
					time.Sleep(time.Second)
					switch {
					case key == "fails" && worker.CallOf(ctx).Attempt() < 4:
						return errBroken
					case key == "brings":
						q.AddAfter("brought", time.Minute)
					}
					return nil
				}, options{Workers: 2})
				r := run(t, p)
				waits := func(what string, want time.Duration) {
					t.Helper()
					begun := time.Now()
					if err := p.WaitIdle(t.Context()); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					if took := time.Since(begun); took < want || took > want+100*time.Millisecond {
						t.Errorf("%s: it took %v, want %v", what, took, want)
					}
				}
				waits("nothing to do", 0)
				addAll(q, "a b c d")
				waits("four keys, two workers", 2*time.Second)
				q.Add("fails")
				waits("a key that fails three times", 4*time.Second+(1+2+4)*time.Second)
				q.Add("brings")
				waits("a key that brings another one", time.Second+time.Minute+time.Second)
				setWorkers(t, p, 0)
				q.Add("a")
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				begun := time.Now()
				if err := p.WaitIdle(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Hour {
					t.Errorf("a pool that is paused: %v after %v", err, time.Since(begun))
				}
				setWorkers(t, p, 1)
				waits("and that continues", time.Second)
				r.endCleanly()
				waits("after Run", 0)
			})
		})
	}
}

// WaitIdle says why it will never be idle: the pool cannot run, or has run and left something.
func TestWaitIdleInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		err := worker.New(q, fine, options{Workers: -1}).WaitIdle(t.Context())
		if err == nil || !strings.Contains(err.Error(), "Workers is negative") {
			t.Errorf("a wrong option: %v", err)
		}
		p := worker.New(q, fine, options{KeepQueue: true})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		if err := p.WaitIdle(t.Context()); err == nil || !strings.Contains(err.Error(), "Run has returned") {
			t.Errorf("a key is left: %v", err)
		}
		l := &listing{err: errBroken}
		p = worker.New(newQueue(), fine, options{List: l.list})
		run(t, p).endCleanly()
		if err := p.WaitIdle(t.Context()); err == nil || !strings.Contains(err.Error(), "not been listed") {
			t.Errorf("no list has succeeded: %v", err)
		}
	})
}

// WaitIdle waits until the keys of Options.List have been listed and handled, also after failures.
func TestWaitIdleLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, lists, handled := newQueue(), 0, 0
		p := worker.New(q, func(context.Context, string) error { handled++; return nil }, options{
			List: func(context.Context) (iter.Seq[string], error) {
				time.Sleep(time.Second)
				if lists++; lists < 3 {
					return nil, errBroken
				}
				return slices.Values([]string{"a", "b"}), nil
			},
		})
		r := run(t, p)
		if err := p.WaitIdle(t.Context()); err != nil || handled != 2 {
			t.Errorf("%v after %d keys of 2", err, handled)
		}
		r.endCleanly()
	})
}
