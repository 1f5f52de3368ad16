package handlertest

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/keyedqueue/workqueue/worker"
)

// call is a call of a handler.
type call struct {
	process *Process
	text    string // the key's
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
		c := &call{p, textOf(key)}
		ctx = context.WithValue(ctx, callKey{}, c)
		p.step(ctx, "")
		if err := ctx.Err(); err != nil {
			return err // Its timeout ended before the handler was called.
		}
		p.tell(ctx, "the handler begins")
		r.sim.mu.Lock()
		r.sim.callsBegun++
		if r.sim.isCalm() {
			r.sim.calmCalls[processKey{p, key}]++
		}
		r.running[c] = struct{}{}
		r.sim.mu.Unlock()
		returned := false
		defer func() {
			r.sim.mu.Lock()
			delete(r.running, c)
			r.sim.mu.Unlock()
			if v := recover(); v != nil {
				r.sim.failRun("panic", "%s: the handler panics: %v\n%s", c.named(), v, debug.Stack())
				err = fmt.Errorf("panic: %v", v)
			} else if !returned && !p.isDead() {
				r.sim.failRun("panic", "%s: the handler has ended its goroutine (runtime.Goexit)", c.named())
			}
		}()
		err = h(ctx, key)
		returned = true
		p.tell(ctx, "the handler returns %v", cmp.Or[any](err, "nil"))
		p.crashPoint("before the key is done")
		return err
	}
}
