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
	ctx     context.Context // that OnStart got
	attempt int
	started time.Time
	stuck   bool // the call was reported as stuck
}

// state is what a worker does.
type state uint8

const (
	getting  state = iota // waits for a key, or puts one down
	handling              // has a key whose handler, or what follows from its answer, is not finished
	finished              // calls Done, or was given a key too late to start it
	gone                  // has left the pool
)

// runningKey describes the call of a worker that is handling.
func (w *worker[T]) runningKey(now time.Time) RunningKey[T] {
	return RunningKey[T]{Key: w.key, Attempt: w.attempt, Started: w.started, Duration: now.Sub(w.started), Stuck: w.stuck}
}

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
	shutDown := errors.Is(err, workqueue.ErrShutDown) // Not under mu: the error may be foreign.
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case shutDown:
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

// replace ensures that a worker whose goroutine ends early gets another goroutine or leaves the pool.
func (p *Pool[T]) replace(w *worker[T]) {
	if p.hasLeft(w) {
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
	// Handlers' panics do not get here. What does is the panic of a hook, the logger or the queue.
	p.panicked(v)
}

func (p *Pool[T]) hasLeft(w *worker[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.state == gone
}

// process does everything with a key that w has got. Done comes last, and exactly once whatever panics or
// calls runtime.Goexit before.
func (p *Pool[T]) process(w *worker[T], key T) {
	defer p.queue.Done(key)
	defer p.setFinished(w)
	c := call[T]{Result: Result[T]{Key: key}}
	p.guarded(func() { p.prepareCall(&c) }) // If it panics, the pool ends and begin returns false.
	if c.cancel != nil {
		defer c.cancel()
	}
	if !p.begin(w, &c) {
		p.putDown(&c)
		return
	}
	returned := false
	defer func() {
		if !returned {
			// recover works only here, in the deferred function itself.
			p.notReturned(&c, recover())
		}
		p.settle(&c)
	}()
	if p.options.OnStart != nil {
		if ctx := p.options.OnStart(c.ctx, key); ctx != nil {
			c.ctx = ctx
		}
	}
	c.Err = p.handler(c.ctx, key)
	returned = true
}

// begin makes w the worker that handles c's key, or returns false if no key may be started any more: starting may
// have ended while the queue handed the key out.
func (p *Pool[T]) begin(w *worker[T], c *call[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notGetting.Broadcast()
	if p.starting.Err() == nil {
		*w = worker[T]{state: handling, key: c.Key, ctx: c.ctx, attempt: c.Attempt, started: c.Started}
		return true
	}
	if p.keepsKeys() {
		return false // Still getting, so that Run waits until the key is put down.
	}
	w.state = finished
	p.notStarted = append(p.notStarted, c.Key)
	return false
}

// keepsKeys reports whether a key that is not started goes back to the queue: because the queue stays open, or because
// other processes share it and handle the key.
func (p *Pool[T]) keepsKeys() bool { return p.options.KeepQueue || p.leaser != nil }

// putDown gives a key that was not started back to a queue that keeps it. If somebody has shut the queue down, it takes
// nothing back, and the key is reported instead.
func (p *Pool[T]) putDown(c *call[T]) {
	if !p.keepsKeys() {
		return
	}
	p.addAfter(c, 0)
	if p.queue.ShuttingDown() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.notStarted = append(p.notStarted, c.Key)
	}
}

func (p *Pool[T]) setFinished(w *worker[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*w = worker[T]{state: finished}
	p.notGetting.Broadcast()
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
