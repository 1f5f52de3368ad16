package workqueuetest

import (
	"context"
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

// process gets and finishes the keys that are queued, which must be want and nothing else.
func (r *run) process(q fifo, when string, want ...string) {
	for _, key := range want {
		r.hold(q, key)
		q.Done(key)
	}
	r.wantLen(q, when, 0)
}

// calls are calls of all methods that never wait for other goroutines, except Done. AddAfter and GetContext ask how long
// to wait.
func calls(q fifo, delay func() time.Duration) map[string]func(key string) {
	all := map[string]func(key string){
		"Add":          q.Add,
		"Len":          func(string) { q.Len() },
		"ShuttingDown": func(string) { q.ShuttingDown() },
	}
	if d, ok := q.(delaying); ok {
		all["AddAfter"] = func(key string) { d.AddAfter(key, delay()) }
	}
	if l, ok := q.(limiting); ok {
		all["AddRateLimited"] = l.AddRateLimited
		all["Forget"] = l.Forget
		all["NumRequeues"] = func(key string) { l.NumRequeues(key) }
	}
	if e, ok := q.(extended); ok {
		all["Stats"] = func(string) { e.Stats() }
		all["GetContext"] = func(string) {
			ctx, cancel := context.WithTimeout(context.Background(), delay())
			defer cancel()
			if key, err := e.GetContext(ctx); err == nil {
				q.Done(key)
			}
		}
	}
	return all
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

// canceled returns a context that is done.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
