package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// TestLeft has keys that fail, wait, run or are refused when Run ends. A key is reported once, by what it is
// then.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		name   string
		keys   []string
		o      options
		handle func(ctx context.Context, q stringQueue, key string, call int) error // call: of this key
		end    time.Duration                                                        // when the context ends
		left   string
	}{
		{"failing keys, also those that wait for their retry", []string{"fails 2", "fails 1", "later"}, options{},
			func(ctx context.Context, _ stringQueue, key string, _ int) error { return acts(ctx, key) },
			time.Second / 2, "2 failed and not retried: fails 1, fails 2"},
		{"keys that fail during the drain", []string{"again", "fails", "fine", "later", "dropped"},
			options{Drain: worker.All},
			func(_ context.Context, q stringQueue, key string, call int) error {
				if key == "again" && call == 1 {
					q.Add(key) // Before the context ends: it is handled again, and succeeds.
				}
				time.Sleep(time.Second)
				switch {
				case key == "fine", call == 2:
					return nil
				case key == "later":
					return worker.RequeueAfter(time.Minute)
				case key == "dropped":
					return worker.Terminal(errBroken)
				}
				return errBroken
			}, 0, "1 failed and not retried: fails"},
		// What its handler wants again at once, while the queue takes none back, unless it is queued all the
		// same.
		{"refused keys", []string{"again", "refused 2", "refused 1"}, options{Drain: worker.All},
			func(_ context.Context, q stringQueue, key string, call int) error {
				if key == "again" && call == 2 {
					return nil
				}
				q.Add(key[:min(len(key), len("again"))]) // Adds again, and otherwise nothing: the queue is shut down.
				time.Sleep(time.Second)
				return fmt.Errorf("soon: %w", worker.RequeueAfter(-time.Second))
			}, 0, "2 queued and not started: refused 1, refused 2"},
		// A handler that gives up because its context has ended has not used up its last attempt. Answers that do
		// not depend on the context count as always.
		{"interrupted last attempts", []string{"interrupted", "terminal"},
			options{Workers: 2, MaxRetries: 1, DrainTimeout: time.Second},
			func(ctx context.Context, _ stringQueue, key string, call int) error {
				if call == 1 {
					return errBroken
				}
				<-ctx.Done()
				if key == "terminal" {
					return worker.Terminal(errBroken)
				}
				return ctx.Err()
			}, 2 * time.Second, "1 queued and not started: interrupted"},
		// One of a and b runs again, and the other one is queued.
		{"keys that have failed and run, or are queued", []string{"a", "b", "waits"},
			options{DrainTimeout: time.Second / 2, CancelGrace: worker.NoGrace},
			func(_ context.Context, _ stringQueue, key string, call int) error {
				if call > 1 {
					time.Sleep(time.Minute)
					return nil
				}
				if key == "waits" {
					time.Sleep(time.Second)
				}
				return errBroken
			}, 1050 * time.Millisecond,
			"1 still running: a; 1 queued and not started: b; 1 failed and not retried: waits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				for _, key := range c.keys {
					q.Add(key)
				}
				var mu sync.Mutex
				calls := make(map[string]int)
				p := worker.New(q, func(ctx context.Context, key string) error {
					mu.Lock()
					calls[key]++
					call := calls[key]
					mu.Unlock()
					return c.handle(ctx, q, key, call)
				}, c.o)
				r := run(t, p)
				r.after(c.end)
				r.cancel()
				r.after(c.end + 10*time.Second)
				r.returnedLeaving(c.left)
				if st := p.Stats(); st.Failing < len(p.Left().Failing) || c.name == "refused keys" &&
					(st.Failing != 0 || st.Requeued != 3) {
					t.Errorf("%+v", st)
				}
				r.after(time.Hour)
				wantMatchedDones(t, q)
			})
		})
	}
}

func TestLeftAsText(t *testing.T) {
	for _, c := range []struct {
		left interface{ String() string }
		text string
	}{
		{worker.Left[string]{Unfinished: []string{"a"}, NotStarted: []string{"b", "c"}, Failing: []string{"d"}},
			"1 still running: a; 2 queued and not started: b, c; 1 failed and not retried: d"},
		{worker.Left[int]{NotStarted: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
			"11 queued and not started: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"},
	} {
		if c.left.String() != c.text {
			t.Errorf("%q, want %q", c.left, c.text)
		}
	}
}

// With very many keys the log gets their number, and a few of them.
func TestLogOfManyKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		const n = 10_000
		for i := range n {
			q.Add(fmt.Sprint("namespace/name-", i))
		}
		logger, logs := newLogger()
		p := worker.New(q, acts, options{Logger: logger})
		p.Stop(worker.Running)
		if err := run(t, p).returned(); err != nil || len(p.Left().NotStarted) != n || len(logs.String()) > 1000 {
			t.Errorf("Run returned %v, %d keys, %d bytes logged", err, len(p.Left().NotStarted), len(logs.String()))
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
		q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[*stoppingKey](
			time.Second, time.Hour))
		q.Add(&stoppingKey{stop})
		p = worker.New(q, func(context.Context, *stoppingKey) error { return errBroken },
			worker.Options[*stoppingKey]{})
		run(t, p).endLeaving("1 failed and not retried: key")
	})
	synctest.Test(t, func(t *testing.T) {
		var p *worker.Pool[string]
		stop := func() { p.Stop(worker.Running) }
		p = worker.New(newQueue(), sleeper(new(journal)), options{Name: "q",
			Logger: slog.New(stoppingLog{slog.DiscardHandler, stop})})
		run(t, p).returnedLeaving("nothing")
	})
}

// slowDone is a queue whose Done takes long.
type slowDone struct{ extended }

func (q slowDone) Done(key string) {
	time.Sleep(time.Hour)
	q.extended.Done(key)
}

// Neither Run nor the watcher waits long for the Done of somebody else's queue. Its key is unfinished: it may
// have been added again, which nobody will hear of. It is not stuck.
func TestDoneThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		r := run(t, worker.New(slowDone{q}, takes(2*time.Second), options{
			DrainTimeout: time.Second, CancelGrace: worker.NoGrace, StuckAfter: 5 * time.Second,
			OnStuck: func(_ context.Context, s stuck) { t.Errorf("%s is stuck", s.Key) },
		}))
		r.after(30 * time.Second)
		r.cancel()
		r.after(32 * time.Second)
		r.returnedLeaving("1 still running: a")
		r.after(2 * time.Hour)
		wantMatchedDones(t, q)
	})
}

// The key of a handler that was left behind was added again. Nobody handles it, and it must not stay in the
// queue, which somebody may drain.
func TestKeyLeftBehindIsNotQueuedForever(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		r := run(t, worker.New(q, takes(time.Minute), options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}))
		q.Add("a")
		r.cancel()
		r.after(time.Second)
		r.returnedLeaving("1 still running: a")
		q.ShutDownWithDrain()
		r.after(time.Minute)
		wantMatchedDones(t, q)
	})
}

// A key whose handler has returned is handed out again when it is Done, because it was added meanwhile. That
// is not forgotten if Run ends in between.
func TestLeftHasAKeyThatIsNotYetDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		r := run(t, worker.New(briefDone{q}, func(_ context.Context, key string) error {
			q.Add(key)
			return nil
		}, options{DrainTimeout: time.Millisecond, CancelGrace: worker.NoGrace}))
		r.cancel()
		r.after(time.Second)
		r.returnedLeaving("1 queued and not started: a")
		wantMatchedDones(t, q)
	})
}

// briefDone is a queue whose Done takes a moment.
type briefDone struct{ extended }

func (q briefDone) Done(key string) {
	time.Sleep(50 * time.Millisecond)
	q.extended.Done(key)
}

// lateQueue hands out a key when the context has just ended, which GetContext may.
type lateQueue struct{ extended }

func (q lateQueue) Next(ctx context.Context) (workqueue.HandOut[string], error) {
	if q.ShuttingDown() || ctx.Err() != nil {
		return q.extended.Next(ctx)
	}
	<-ctx.Done()
	return q.extended.Next(context.WithoutCancel(ctx))
}

// A key that is got while the context ends may have been added after that. It is not started.
func TestKeyThatIsGotTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		addAll(q, "a b c")
		var j journal
		p := worker.New(lateQueue{q}, sleeper(&j), options{Workers: 2})
		r := run(t, p)
		_ = r.end()
		e := p.Left()
		slices.Sort(e.NotStarted)
		if !slices.Equal(e.NotStarted, []string{"a", "b", "c"}) || j.take() != nil {
			t.Errorf("left: %+v", e)
		}
		wantMatchedDones(t, q)
	})
}

// slowGet takes a second to return a key that it has taken out of the queue when the context has just ended.
type slowGet struct{ lateQueue }

func (q slowGet) Next(ctx context.Context) (workqueue.HandOut[string], error) {
	down := q.ShuttingDown()
	key, err := q.lateQueue.Next(ctx)
	if !down && err == nil {
		time.Sleep(time.Second)
	}
	return key, err
}

// Run waits for a worker that has a key in hand, to report it.
func TestKeyThatTakesLongToGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		addAll(q, "a b")
		r := run(t, worker.New(slowGet{lateQueue{q}}, sleeper(new(journal)),
			options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}))
		r.cancel()
		r.after(time.Second)
		r.returnedLeaving("2 queued and not started: b, a") // a was handed back, behind b.
		wantMatchedDones(t, q)
	})
}
