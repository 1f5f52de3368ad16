package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// With KeepQueue a program that has lost its leadership runs again, with a new pool, and no key is lost.
func TestKeepQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for _, key := range []string{"fails", "2s", "3s"} {
			q.Add(key)
		}
		var j journal
		handle := func(ctx context.Context, key string) error {
			if key == "fails" && worker.Attempt(ctx) == 1 {
				j.add("fails")
				return errBroken
			}
			return sleeper(&j)(ctx, key)
		}
		first := worker.New(q, handle, options{KeepQueue: true})
		r := run(t, first)
		r.after(500 * time.Millisecond)
		r.cancel()
		r.after(2 * time.Second)
		if err := r.returned(); err != nil || !first.Left().Empty() || q.ShuttingDown() {
			t.Errorf("Run returned %v, left: %v, shut down: %v", err, first.Left(), q.ShuttingDown())
		}
		if got := j.take(); !slices.Equal(got, []string{"fails", "start 2s", "return 2s"}) {
			t.Errorf("first: %q", got)
		}
		q.Add("1s")
		second := run(t, worker.New(q, handle, options{}))
		second.after(time.Minute)
		second.endCleanly()
		want := []string{"start 3s", "return 3s", "fails", "start 1s", "return 1s"}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("second: %q, want %q", got, want)
		}
	})
}

// The end of a pool does not stop another one on the same queue. A handler that is left behind goes on.
func TestKeepQueueForAnotherPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var j journal
		first := run(t, worker.New(q, sleeper(&j), options{KeepQueue: true, DrainTimeout: time.Second, CancelGrace: worker.NoGrace}))
		q.Add("5s")
		synctest.Wait()
		second := run(t, worker.New(q, sleeper(&j), options{KeepQueue: true}))
		first.cancel()
		first.after(time.Second)
		if e := left(t, first.returned()); !slices.Equal(e.Unfinished, []string{"5s"}) || e.NotStarted != nil || e.Failing != nil {
			t.Errorf("left: %+v", e)
		}
		j.take()
		q.Add("1s")
		q.Add("5s") // Held by the first pool.
		second.after(time.Minute)
		second.endCleanly()
		if got := j.take(); !slices.Equal(got, []string{"start 1s", "return 1s", "return 5s", "start 5s", "return 5s"}) {
			t.Errorf("%q", got)
		}
		wantMatchedDones(t, q)
	})
}

// A key that is got too late goes back into a queue that is kept, with its priority.
func TestKeepQueueKeyThatIsGotTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		q.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, "a")
		r := run(t, worker.New(latePriorityQueue{lateQueue{q}, q}, sleeper(new(journal)), options{KeepQueue: true}))
		r.cancel()
		if err := r.returned(); err != nil {
			t.Error(err)
		}
		if key, priority, _ := q.GetWithPriority(); key != "a" || priority != 5 {
			t.Errorf("got %v with priority %d", key, priority)
		}
		q.Done("a")
		q.ShutDown()
		wantMatchedDones(t, q)
	})
}

// A queue that somebody else has shut down takes back no key that was got too late. It is reported.
func TestKeepQueueKeyThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		q.AddWithOpts(priorityqueue.AddOpts{}, "a")
		r := run(t, worker.New(slowLate{latePriorityQueue{lateQueue{q}, q}}, sleeper(new(journal)), options{KeepQueue: true}))
		r.cancel()
		synctest.Wait()
		q.ShutDown()
		r.after(time.Second)
		if e := left(t, r.returned()); !slices.Equal(e.NotStarted, []string{"a"}) {
			t.Errorf("left: %+v", e)
		}
		wantMatchedDones(t, q)
	})
}

// slowLate takes a second to return a key that it has taken out of the queue.
type slowLate struct{ latePriorityQueue }

func (q slowLate) GetContext(ctx context.Context) (string, error) {
	key, err := q.latePriorityQueue.GetContext(ctx)
	time.Sleep(time.Second)
	return key, err
}

// latePriorityQueue is a lateQueue with priorities.
type latePriorityQueue struct {
	lateQueue
	worker.PriorityQueue[string]
}

// Stop(All) would shut the queue down.
func TestKeepQueueStopAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("1s")
		q.Add("2s")
		p := worker.New(q, sleeper(new(journal)), options{KeepQueue: true})
		r := run(t, p)
		p.Stop(worker.All)
		r.after(time.Second)
		if err := r.returned(); err != nil || q.ShuttingDown() || q.Len() != 1 {
			t.Errorf("Run returned %v, %d keys", err, q.Len())
		}
	})
}

// If somebody else shuts the queue down, keys that fail are left.
func TestKeepQueueThatIsShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error { return errBroken }, options{KeepQueue: true}))
		q.ShutDown()
		if e := left(t, r.returned()); !slices.Equal(e.Failing, []string{"a"}) {
			t.Errorf("left: %+v", e)
		}
	})
}

// OnLeft gets what Left returns, before Run returns. It is not called if nothing is left.
func TestOnLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var lefts []worker.Left[string]
		onLeft := func(l worker.Left[string]) { lefts = append(lefts, l) }
		run(t, worker.New(newQueue(), sleeper(new(journal)), options{OnLeft: onLeft})).endCleanly()
		if lefts != nil {
			t.Errorf("left: %v", lefts)
		}
		q.Add("fatal")
		q.Add("queued")
		p := worker.New(q, func(context.Context, string) error { return worker.Fatal(errBroken) }, options{OnLeft: onLeft})
		if !p.Left().Empty() || p.Left().String() != "nothing" {
			t.Errorf("left before Run: %v", p.Left())
		}
		err := p.Run(t.Context())
		if !errors.Is(err, errBroken) || err.Error() != "broken" {
			t.Errorf("Run returned %v", err)
		}
		if len(lefts) != 1 || !slices.Equal(lefts[0].NotStarted, []string{"queued"}) || lefts[0].String() != p.Left().String() {
			t.Errorf("left: %v", lefts)
		}
	})
}

func TestPanicOfOnLeftIsFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := worker.Run(ctx, q, sleeper(new(journal)), options{OnLeft: func(worker.Left[string]) { panic("hook") }})
		var p *worker.PanicError
		if !errors.As(err, &p) || p.Value != "hook" {
			t.Errorf("Run returned %v", err)
		}
	})
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

// Nothing ends the handlers' contexts at once, whenever it is asked for.
func TestStopNothing(t *testing.T) {
	for name, o := range map[string]options{
		"by Stop": {}, "by the context": {Drain: worker.Nothing},
	} {
		for _, before := range []bool{false, true} {
			inBubble(t, func(t *testing.T, q stringQueue) {
				q.Add("a")
				q.Add("b")
				p := worker.New(q, func(ctx context.Context, key string) error {
					<-ctx.Done()
					return nil
				}, o)
				r := run(t, p)
				if before {
					p.Stop(worker.Running)
				}
				r.after(time.Second)
				r.goesOn()
				if name == "by Stop" {
					p.Stop(worker.Nothing)
				} else {
					r.cancel()
				}
				if e := left(t, r.returned()); !slices.Equal(e.NotStarted, []string{"b"}) {
					t.Errorf("left: %+v", e)
				}
			})
		}
	}
}

// A pool whose queue somebody shuts down, with keys that fail, does not end its group.
func TestGroupGoesOnWithoutAQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		other := newQueue()
		other.Add("a")
		pool := worker.New(other, func(context.Context, string) error { return errBroken }, options{})
		var j journal
		var g worker.Group
		g.Add(pool)
		g.Add(worker.New(q, sleeper(&j), options{}))
		r := run(t, &g)
		other.ShutDown()
		synctest.Wait()
		if !slices.Equal(pool.Left().Failing, []string{"a"}) {
			t.Errorf("left: %v", pool.Left())
		}
		q.Add("1s")
		r.after(time.Second)
		r.goesOn()
		r.endCleanly()
		if len(j.take()) != 2 {
			t.Error("the other pool did not go on")
		}
	})
}

// The first middleware is the outermost, and what it does belongs to the handler.
func TestMiddleware(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		named := func(name string) func(worker.Handler[string]) worker.Handler[string] {
			return func(next worker.Handler[string]) worker.Handler[string] {
				j.add("wrap " + name)
				return func(ctx context.Context, key string) error {
					j.add(name + " " + key)
					if name == "inner" && worker.Attempt(ctx) == 1 {
						panic("middleware")
					}
					defer j.add(name + " returns")
					return next(ctx, key)
				}
			}
		}
		q.Add("a")
		p := worker.New(q, func(context.Context, string) error { j.add("handler"); return nil }, options{
			Middleware: []func(worker.Handler[string]) worker.Handler[string]{named("outer"), named("inner")},
		})
		if got := j.take(); !slices.Equal(got, []string{"wrap inner", "wrap outer"}) {
			t.Errorf("New: %q", got)
		}
		r := run(t, p)
		if got := j.take(); !slices.Equal(got, []string{"outer a", "inner a", "outer returns"}) || p.Stats().Panicked != 1 {
			t.Errorf("first: %q", got)
		}
		r.after(time.Second)
		if got := j.take(); !slices.Equal(got, []string{"outer a", "inner a", "handler", "inner returns", "outer returns"}) {
			t.Errorf("second: %q", got)
		}
		r.endCleanly()
	})
}
