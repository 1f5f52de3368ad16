package handlertest

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/keyedqueue/workqueue/worker"
)

type call struct {
	process *Process
	key     any
	text    string // the key's
	ctx     context.Context
}

type callKey struct{}

// callOf returns the call whose context ctx is, or is made from. Without one it returns an empty one.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// named returns the key of the call, and its process if there are several; "" outside of calls.
func (c *call) named() string {
	if c.process == nil {
		return ""
	}
	return c.process.named(c.text)
}

// handle returns what the workers of the process call.
func handle[K comparable](r *run[K], p *Process, h worker.Handler[K]) worker.Handler[K] {
	return func(ctx context.Context, key K) (err error) {
		c := &call{process: p, key: key, text: textOf(key)}
		c.ctx = context.WithValue(ctx, callKey{}, c)
		p.step(c.ctx, "")
		if err := ctx.Err(); err != nil {
			return err // Its timeout ended before the handler was called.
		}
		p.tell(c.ctx, "the handler begins")
		defer r.begin(c)()
		returned := false
		defer func() {
			if v := recover(); v != nil {
				r.sim.fail("panic", "%s: the handler panics: %v\n%s", c.named(), v, debug.Stack())
				err = fmt.Errorf("panic: %v", v)
			} else if !returned && !p.isDead() {
				r.sim.fail("panic", "%s: the handler has ended its goroutine (runtime.Goexit)", c.named())
			}
		}()
		err = h(c.ctx, key)
		returned = true
		p.tell(c.ctx, "the handler returns %v", cmp.Or[any](err, "nil"))
		p.crashPoint("before the key is done")
		return err
	}
}

// begin notes that a call begins, and returns what notes its end.
func (r *run[K]) begin(c *call) (end func()) {
	s := r.sim
	s.mu.Lock()
	s.callsBegun++
	s.calmCalls[c.key]++
	r.running[c] = struct{}{}
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(r.running, c)
	}
}
