package workqueuetest

import (
	"context"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// call is a call that may block, in a bubble.
type call[R any] struct {
	r    *run
	what string
	testkit.Call[R]
}

func start[R any](r *run, what string, f func() R) *call[R] {
	c := &call[R]{r: r, what: what}
	go r.catch(func() { c.Return(f()) })
	return c
}

// mustBlock fails the case unless the call is blocked when all goroutines are.
func (c *call[R]) mustBlock(when string) { c.MustBlock(c.r, c.what+" "+when) }

// mustReturn returns the result of the call, which must have returned when all goroutines are blocked.
func (c *call[R]) mustReturn(when string) R { return c.MustReturn(c.r, c.what+" "+when) }

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

// ender is one of the ways to shut a queue down.
type ender struct {
	name string
	end  func() error
}

// enders returns the ways to shut q down. All but the first wait for the keys.
func enders(q fifo) []ender {
	all := []ender{
		{"ShutDown", func() error { q.ShutDown(); return nil }},
		{"ShutDownWithDrain", func() error { q.ShutDownWithDrain(); return nil }},
	}
	if e, ok := q.(extended); ok {
		all = append(all, ender{"ShutDownContext", func() error { return e.ShutDownContext(context.Background()) }})
	}
	return all
}

func (e ender) start(r *run) *call[error] { return start(r, e.name, e.end) }
