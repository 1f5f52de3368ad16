package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// worker is one of a pool's workers. A goroutine runs work for it; if a handler ends that goroutine with
// runtime.Goexit, another one takes its place. The pool's mu guards all fields.
type worker[T comparable] struct {
	state state
	// What follows belongs to the key of a worker that is handling.
	key     T
	started time.Time
	stuck   bool // the call was reported as stuck
}

// state is what a worker does.
type state uint8

const (
	getting  state = iota // waits for a key
	handling              // has a key whose handler, or what follows from its answer, is not finished
	finished              // calls Done, or was given a key too late to start it
	gone                  // has left the pool
)

// work gets keys and handles them until there is none for w any more.
func (p *Pool[T]) work(w *worker[T]) {
	defer p.replace(w)
	var err error
	for {
		ctx, stays := p.stays(w, err)
		if !stays {
			return
		}
		var key T
		if key, err = p.getter.GetContext(ctx); err == nil {
			p.process(w, key)
		} else if ctx.Err() == nil && !errors.Is(err, workqueue.ErrShutDown) {
			p.fail(fmt.Errorf("worker: GetContext of the queue: %w", err))
		}
	}
}

// stays returns the context for w's next GetContext, or false if w has left the pool. The error is that of
// its last GetContext.
func (p *Pool[T]) stays(w *worker[T], err error) (context.Context, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(err, workqueue.ErrShutDown):
		// A key that another worker holds may be queued again, and that worker is there to get it. After
		// the last one there is nothing to come, unless the pool was paused.
		p.exhausted = len(p.workers) == 1
	case p.starting.Err() == nil && len(p.workers) <= p.target:
		w.state = getting
		return p.getting, true
	}
	p.leaveLocked(w)
	return nil, false
}

// leaveLocked takes w from the pool.
func (p *Pool[T]) leaveLocked(w *worker[T]) {
	i := slices.Index(p.workers, w)
	p.workers = slices.Delete(p.workers, i, i+1)
	*w = worker[T]{state: gone}
	p.notGetting.Broadcast()
	p.endLocked()
}

// replace ensures that a worker whose goroutine ended early leaves the pool or gets another goroutine.
func (p *Pool[T]) replace(w *worker[T]) {
	p.mu.Lock()
	left := w.state == gone
	p.mu.Unlock()
	if left {
		return
	}
	v := recover()
	if v == nil { // runtime.Goexit
		go p.work(w)
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leaveLocked(w)
	}()
	// Handlers' panics do not get here. What does is the panic of a hook, the logger, the clock or the queue.
	p.panicked(v)
}

// process does everything with a key that w has got. Done comes last, and exactly once whatever panics or
// calls runtime.Goexit before.
func (p *Pool[T]) process(w *worker[T], key T) {
	defer p.queue.Done(key)
	defer p.setFinished(w)
	c := call[T]{key: key, attempt: p.failures.of(key) + 1}
	p.guarded(func() { p.prepareCall(&c) }) // If the clock panics, begin returns false.
	if c.cancel != nil {
		defer c.cancel()
	}
	if !p.begin(w, key, c.started) {
		return
	}
	returned := false
	defer func() {
		if !returned {
			// recover must be called here, and not in a function that this one calls.
			p.notReturned(&c, recover())
		}
		p.settle(&c)
	}()
	c.err = p.handler(p.onStart(c.ctx, key), key)
	returned = true
}

// begin makes w the worker that handles key, or returns false if that must not be started any more: starting
// may have ended since the queue looked, and the key may have been added even after that.
func (p *Pool[T]) begin(w *worker[T], key T, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notGetting.Broadcast()
	if p.starting.Err() != nil {
		p.notStarted = append(p.notStarted, key)
		w.state = finished
		return false
	}
	w.state, w.key, w.started, w.stuck = handling, key, now, false
	return true
}

func (p *Pool[T]) setFinished(w *worker[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var none T
	w.state, w.key = finished, none
	p.notGetting.Broadcast()
}

// notReturned notes why the handler has not returned: it panicked with v, or called runtime.Goexit.
func (p *Pool[T]) notReturned(c *call[T], v any) {
	if v == nil {
		c.err = ErrGoexit
		return
	}
	c.panic = &PanicError{Value: v, Stack: debug.Stack()}
	c.err = c.panic
	if p.options.CrashOnPanic {
		p.logPanic(c)
		// The stack that the runtime prints is still that of the handler.
		panic(v)
	}
}

// prepareCall makes the handler's context.
func (p *Pool[T]) prepareCall(c *call[T]) {
	c.started = p.options.Clock.Now()
	ctx := p.firstCall
	if c.attempt > 1 || p.logger != nil {
		ctx = &callContext{Context: p.handling, attempt: c.attempt, key: c.key, logger: p.logger}
	}
	c.ctx = ctx
	if p.options.HandlerTimeout > 0 {
		c.ctx, c.cancel = withTimeout(ctx, p.options.Clock, p.options.HandlerTimeout)
	}
}

// onStart returns what the hook makes of the handler's context.
func (p *Pool[T]) onStart(ctx context.Context, key T) context.Context {
	if p.options.OnStart != nil {
		if of := p.options.OnStart(ctx, key); of != nil {
			return of
		}
	}
	return ctx
}

// guarded runs f, which calls foreign code.
func (p *Pool[T]) guarded(f func()) {
	defer func() {
		if v := recover(); v != nil {
			p.panicked(v)
		}
	}()
	f()
}

// panicked is called with what was recovered from foreign code other than the handler.
func (p *Pool[T]) panicked(v any) {
	if p.options.CrashOnPanic {
		panic(v)
	}
	p.fail(&PanicError{Value: v, Stack: debug.Stack()})
}
