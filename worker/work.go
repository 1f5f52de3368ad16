package worker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// This file follows a key from top to bottom: work gets it, process prepares (in context.go) and begins the call, handle calls
// the handler, and finishCall, in outcome.go, carries out what that has answered. Done comes last.

// worker is one of a pool's workers. A goroutine runs work for it; if a handler ends that goroutine with
// runtime.Goexit, another one takes its place. The pool's mu guards all fields but contexts.
type worker[T comparable] struct {
	state state
	// contexts are for the next calls. Only the worker's goroutine uses them.
	contexts []callContext
	// goroutine is the number of the worker's goroutine. It is empty without StuckAfter.
	goroutine string
	// current is the call of a worker that is handling, and otherwise zero.
	current[T]
}

// current is a call that goes on.
type current[T comparable] struct {
	RunningKey[T] // without Duration
	base          *callContext
	ctx           context.Context // that OnStart got: base, or made from it
}

// state is what a worker does.
type state uint8

const (
	getting  state = iota // waits for a key, or gives one back
	handling              // has a key whose handler, or what follows from its answer, is not finished
	finished              // calls Done, or was given a key too late to start it
)

// call is one call of the handler.
type call[T comparable] struct {
	Result[T]
	base     *callContext
	ctx      context.Context    // base, or made from it
	cancel   context.CancelFunc // nil without a HandlerTimeout or a lease
	lost     bool               // the key's lease had ended before the handler could be called
	priority int                // of a key of a PriorityQueue
	failed   failureCount       // of the calls before
	panic    *PanicError        // Err, if the handler panicked
	rethrows bool               // a panic of the handler goes on, when all has been done

	// What follows is set by decide.

	after time.Duration // if Next is NextRequeue
	fatal bool
}

// work gets keys and handles them until w has left the pool.
func (p *Pool[T]) work(w *worker[T]) {
	left := false
	defer func() {
		if !left {
			p.workInterrupted(w, recover())
		}
	}()
	p.noteGoroutine(w)
	var err error
	for {
		ctx, ok := p.nextGet(w, err)
		if !ok {
			left = true
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

// workInterrupted gives w another goroutine if a handler has ended its own with runtime.Goexit. Otherwise a hook, the
// logger or the queue has panicked with v, which ends the pool. (Handlers' panics do not get here.)
func (p *Pool[T]) workInterrupted(w *worker[T], v any) {
	if v == nil {
		go p.work(w)
		return
	}
	defer p.locked(func() { p.leaveLocked(w) })
	p.panicked(v)
}

// nextGet returns the context for w's next GetContext, or false if w has left the pool. The last one has returned err.
func (p *Pool[T]) nextGet(w *worker[T], err error) (context.Context, bool) {
	shutDown := errors.Is(err, workqueue.ErrShutDown) // Not under mu: the error may be foreign.
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case shutDown:
		// A key that another worker holds may be queued again, and that worker is there to get it. After
		// the last one there is nothing to come, unless the pool was paused.
		p.mu.exhausted = len(p.mu.workers) == 1
	case p.mayStartLocked() && len(p.mu.workers) <= p.mu.target:
		w.state = getting
		return p.mu.getting, true
	}
	p.leaveLocked(w)
	return nil, false
}

// mayStartLocked reports whether keys may be started: not after Run's context has ended or Stop was called, except with All.
func (p *Pool[T]) mayStartLocked() bool {
	return p.starting.Err() == nil && (!p.mu.stopped || p.mu.stop == All)
}

// leaveLocked takes w from the pool.
func (p *Pool[T]) leaveLocked(w *worker[T]) {
	i := slices.Index(p.mu.workers, w)
	p.mu.workers = slices.Delete(p.mu.workers, i, i+1)
	p.notGetting.Broadcast()
	p.endLocked()
}

// handlingLocked yields the workers that handle a key.
func (p *Pool[T]) handlingLocked() iter.Seq[*worker[T]] {
	return func(yield func(*worker[T]) bool) {
		for _, w := range p.mu.workers {
			if w.state == handling && !yield(w) {
				return
			}
		}
	}
}

// find returns the first call that goes on and for which is returns true.
func (p *Pool[T]) find(is func(current[T]) bool) (c current[T], ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.handlingLocked() {
		if is(w.current) {
			return w.current, true
		}
	}
	return c, false
}

// process does everything with a key that w has got. Done comes last, exactly once whatever panics or ends the goroutine before.
func (p *Pool[T]) process(w *worker[T], key T) {
	defer p.queue.Done(key)
	defer p.setFinished(w)
	c := call[T]{Result: Result[T]{Key: key}}
	defer c.end()
	p.guarded(func() { p.prepare(w, &c, p.firstCall) }) // If it panics, the pool stops, and start returns false.
	switch {
	case c.lost: // Another process may have got the key.
	case p.start(w, &c):
		p.handle(&c)
	case p.givesBack():
		p.giveBack(&c)
	}
}

// start makes w the worker that handles c's key, or returns false if starting has ended while the queue handed the key out.
func (p *Pool[T]) start(w *worker[T], c *call[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mayStartLocked() {
		if !p.givesBack() { // Otherwise w stays getting, so that Run waits until the key is given back.
			w.state = finished
			p.mu.notStarted = append(p.mu.notStarted, c.Key)
			p.notGetting.Broadcast()
		}
		return false
	}
	p.setHandlingLocked(w, c)
	return true
}

func (p *Pool[T]) setHandlingLocked(w *worker[T], c *call[T]) {
	w.state = handling
	w.current = current[T]{RunningKey[T]{Key: c.Key, Attempt: c.Attempt, Started: c.Started}, c.base, c.ctx}
	delete(p.mu.refused, c.Key)
	p.notGetting.Broadcast()
}

// givesBack reports whether a key that is not started goes back to the queue: it stays open, or other processes share it.
func (p *Pool[T]) givesBack() bool { return p.options.KeepQueue || p.leaser != nil }

// giveBack adds a key that was not started to the queue again, or reports it if somebody has shut the queue down.
func (p *Pool[T]) giveBack(c *call[T]) {
	p.addAfter(c, 0)
	if p.queue.ShuttingDown() {
		p.locked(func() { p.mu.notStarted = append(p.mu.notStarted, c.Key) })
	}
}

// handle calls the handler. Whether that returns, panics or ends the goroutine, finishCall follows.
func (p *Pool[T]) handle(c *call[T]) {
	returned := false
	defer func() {
		if !returned {
			// recover works only here, in the deferred function itself.
			v := recover()
			p.notReturned(c, v)
			if c.rethrows && v != nil {
				defer panic(v) // From here, so that it has the handler's stack.
			}
		}
		p.finishCall(c)
	}()
	if p.options.OnStart != nil {
		if ctx := p.options.OnStart(c.ctx, c.Key); ctx != nil {
			c.ctx = ctx
		}
	}
	c.Err = p.handler(c.ctx, c.Key)
	returned = true
}

// notReturned notes why the handler has not returned: it panicked with v or, if v is nil, called runtime.Goexit.
func (p *Pool[T]) notReturned(c *call[T], v any) {
	if v == nil {
		c.Err = ErrGoexit
		return
	}
	c.panic = &PanicError{Value: v, Stack: debug.Stack()}
	c.Err = c.panic
	if p.options.CrashOnPanic && !c.rethrows {
		p.logPanic(c)
		// The stack that the runtime prints is still that of the handler.
		panic(v)
	}
}

// setFinished notes that w has finished its call, apart from Done.
func (p *Pool[T]) setFinished(w *worker[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.state, w.current = finished, current[T]{}
	p.notGetting.Broadcast()
}

// Handle handles key in the caller's goroutine, as a worker of the pool would, and returns what has come of it. It is for
// programs and libraries that have workers of their own: they get keys from the queue, call Handle, and then Done. All else is as
// in a pool that runs: attempts and retries, hooks, Stats, Snapshot, Cancel and stuck handlers. The handler's context is made
// from ctx. If the key's lease has ended already, the handler is not called: the result is NextInterrupted with that cause.
//
// A panic of the handler goes on when all this is done, and so does runtime.Goexit. A panic of a hook, the logger, the clock or
// the queue goes to the caller, too, but one of OnStuck ends the program. Options.Workers, Drain and the other options of the
// end mean nothing. A provider of metrics does not discover the pool: see [Inspect].
//
// Use either Run or Handle: after Handle, Run returns an error; after Run, or with senseless arguments of New, Handle panics.
func (p *Pool[T]) Handle(ctx context.Context, key T) Result[T] {
	if err := p.prepareHandle(); err != nil {
		panic(err)
	}
	w := p.join()
	defer p.leave(w)
	c := call[T]{Result: Result[T]{Key: key}, rethrows: true}
	defer c.end()
	p.prepare(w, &c, p.newCallInfo(ctx))
	if c.lost {
		c.Next, c.Err = NextInterrupted, context.Cause(c.ctx)
		return c.Result
	}
	c.base.need() // The parent knows it from the beginning, so that it ends with the call in any case.
	p.locked(func() { p.setHandlingLocked(w, &c) })
	p.handle(&c)
	return c.Result
}

// beginHandling is called by the first Handle. It returns an error if there can be none.
func (p *Pool[T]) beginHandling() error {
	if err := p.begin(); err != nil {
		return err
	}
	p.handles.Store(true)
	p.prepareLogger()
	p.handling = context.Background()
	return nil
}

// join adds a worker for the caller's goroutine to the pool.
func (p *Pool[T]) join() *worker[T] {
	p.sweepNow()
	w := &worker[T]{contexts: make([]callContext, 1)}
	p.locked(func() {
		p.mu.workers = append(p.mu.workers, w)
		if len(p.mu.workers) == 1 {
			p.mu.endWatch = p.watchForStuck()
		}
	})
	p.noteGoroutine(w)
	return w
}

func (p *Pool[T]) leave(w *worker[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(w)
	if len(p.mu.workers) == 0 {
		p.mu.endWatch()
	}
}
