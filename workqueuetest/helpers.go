package workqueuetest

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The helpers in this file are for cases in bubbles.

// pass lets time pass on the clock of the case, and waits until all goroutines are blocked.
func (r *run) pass(d time.Duration) {
	synctest.Wait()
	if r.fake != nil {
		r.fake.Step(d)
	} else {
		time.Sleep(d)
	}
	synctest.Wait()
}

// needFakeClock skips the case on the real clock.
func (r *run) needFakeClock() *testingclock.FakeClock {
	if r.suite.IgnoresClock {
		r.lacks("use for a clock")
	}
	if r.fake == nil {
		r.skip("on the real clock")
	}
	return r.fake
}

// call is a call that may block.
type call[R any] struct {
	r    *run
	what string
	testkit.Call[R]
}

// start makes a call in a goroutine.
func start[R any](r *run, what string, f func() R) *call[R] {
	c := &call[R]{r: r, what: what}
	r.start(func() { c.Return(f()) }, func() {})
	return c
}

// mustBlock fails the case unless the call is blocked when all goroutines are.
func (c *call[R]) mustBlock(when string) { c.MustBlock(c.r, c.what+" "+when) }

// mustReturn returns the result of the call, which must have returned when all goroutines are blocked.
func (c *call[R]) mustReturn(when string) R { return c.MustReturn(c.r, c.what+" "+when) }

// got is what Get or GetContext returned.
type got struct {
	key string
	err error
}

func get(q fifo) got {
	key, shutdown := q.Get()
	if shutdown {
		return got{key, workqueue.ErrShutDown}
	}
	return got{key, nil}
}

func (r *run) startGet(q fifo) *call[got] {
	return start(r, "Get", func() got { return get(q) })
}

func (r *run) startGetContext(ctx context.Context, q extended) *call[got] {
	return start(r, "GetContext", func() got {
		key, err := q.GetContext(ctx)
		return got{key, err}
	})
}

// ender is one of the ways to shut a queue down.
type ender struct {
	name  string
	drain bool // whether it waits for the keys
	end   func(q fifo) error
}

// enders returns the ways to shut q down.
func enders(q fifo) []ender {
	all := []ender{
		{"ShutDown", false, func(q fifo) error { q.ShutDown(); return nil }},
		{"ShutDownWithDrain", true, func(q fifo) error { q.ShutDownWithDrain(); return nil }},
	}
	if _, ok := q.(extended); ok {
		all = append(all, ender{"ShutDownContext", true, func(q fifo) error {
			return q.(extended).ShutDownContext(context.Background())
		}})
	}
	return all
}

func (e ender) start(r *run, q fifo) *call[error] {
	return start(r, e.name, func() error { return e.end(q) })
}

// hold gets keys, which must be want, and does not finish them.
func (r *run) hold(q fifo, want ...string) {
	for _, w := range want {
		if g := r.startGet(q).mustReturn("when key " + w + " is to come"); g.key != w || g.err != nil {
			r.Fatalf("Get() = %q, %v, want key %q", g.key, g.err, w)
		}
	}
}

// take gets and finishes the keys that are queued.
func (r *run) take(q fifo) (keys []string) {
	for q.Len() > 0 {
		g := r.startGet(q).mustReturn("when keys are queued")
		if g.err != nil {
			r.Fatalf("Get reports shutdown, and Len() = %d", q.Len())
		}
		keys = append(keys, g.key)
		q.Done(g.key)
	}
	return keys
}

// process takes the keys that are queued, which must be want and nothing else.
func (r *run) process(q fifo, when string, want ...string) {
	if keys := r.take(q); !slices.Equal(keys, want) {
		r.Fatalf("%s: got keys %q, want %q", when, keys, want)
	}
}

func (r *run) wantLen(q fifo, when string, want int) {
	if n := q.Len(); n != want {
		r.Fatalf("%s: Len() = %d, want %d", when, n, want)
	}
}

// wantShutDown asserts that q is shut down and has nothing queued: no getter blocks, and none gets a key.
func (r *run) wantShutDown(q fifo, when string) {
	if !q.ShuttingDown() {
		r.Fatalf("%s: ShuttingDown() = false", when)
	}
	if g := r.startGet(q).mustReturn(when); g.err == nil || g.key != "" {
		r.Fatalf("%s: Get() = %q, %v, want no key, and shutdown", when, g.key, g.err)
	}
	if e, ok := q.(extended); ok {
		g := r.startGetContext(context.Background(), e).mustReturn(when)
		if g.err != workqueue.ErrShutDown || g.key != "" {
			r.Fatalf("%s: GetContext() = %q, %v, want no key, and ErrShutDown", when, g.key, g.err)
		}
	}
}

// wantStats checks Stats, if the queue has it.
func (r *run) wantStats(q fifo, when string, want workqueue.Stats) {
	e, ok := q.(extended)
	if !ok {
		return
	}
	st := e.Stats()
	// The others depend on metrics.
	st.Name, st.OldestQueued, st.LongestRunning, st.UnfinishedWork = "", 0, 0, 0
	st.Latency, st.WorkDuration, st.ByPriority = nil, nil, nil
	want.ShuttingDown = q.ShuttingDown()
	if r.suite.PartialStats {
		st, want = workqueue.Stats{Queued: st.Queued}, workqueue.Stats{Queued: want.Queued}
	}
	if st != want {
		r.Fatalf("%s: Stats() = %+v, want %+v", when, st, want)
	}
}

// canceled returns a context that is done.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
