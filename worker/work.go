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

// This file follows a key from top to bottom: work gets it, process prepares and begins the call, handle calls the
// handler, finishCall decides what becomes of the key and carries that out. Done comes last.

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

// nextGet returns the context for w's next GetContext, or false if w has left the pool. The error is that of
// its last GetContext.
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

// mayStartLocked reports whether keys may be started. It is false when Run's context has ended, or Stop was called,
// unless what is queued is to be finished.
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

// process does everything with a key that w has got. Done comes last, and exactly once whatever panics or
// calls runtime.Goexit before.
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

// end ends the handler's context.
func (c *call[T]) end() {
	if c.cancel != nil {
		c.cancel()
	}
	if c.base != nil {
		c.base.callEnds()
	}
}

// prepare finds out what is known of the key, and makes the handler's context, of what contexts have in common.
func (p *Pool[T]) prepare(w *worker[T], c *call[T], common *callInfo) {
	c.failed = p.failuresOf(context.Background(), c.Key)
	c.Attempt = c.failed.calls + 1
	if p.priorities != nil {
		c.priority = p.priorities.PriorityOf(c.Key)
	}
	c.Started = p.options.Clock.Now()
	if len(w.contexts) == 0 { // Many are allocated at once, so that hardly a key costs an allocation.
		w.contexts = make([]callContext, 256)
	}
	c.base, w.contexts = &w.contexts[0], w.contexts[1:]
	c.base.callInfo = common
	if c.Attempt > 1 || p.logger != nil || p.priorities != nil {
		info := *common
		info.attempt, info.priority = c.Attempt, c.priority
		if p.logger != nil {
			info.key = c.Key
		}
		c.base.callInfo = &info
	}
	c.ctx = c.base
	if p.options.HandlerTimeout > 0 {
		c.ctx, c.cancel = p.withTimeout(c.base)
	}
	if p.leaser != nil {
		p.lease(c)
	}
}

// lease makes the handler's context end with the key's lease.
func (p *Pool[T]) lease(c *call[T]) {
	parent, endTimeout := c.ctx, c.cancel
	leased, release := p.leaser.Lease(parent, c.Key)
	c.lost = leased.Err() != nil && parent.Err() == nil
	c.ctx, c.cancel = leased, func() {
		release()
		if endTimeout != nil {
			endTimeout()
		}
	}
	if c.lost && p.logger != nil {
		p.logger.Warn("The lease of a key ended before its handler was called", "key", c.Key)
	}
}

// start makes w the worker that handles c's key, or returns false if no key may be started any more: starting may
// have ended while the queue handed the key out.
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

// givesBack reports whether a key that is not started goes back to the queue: the queue stays open, or other
// processes share it.
func (p *Pool[T]) givesBack() bool { return p.options.KeepQueue || p.leaser != nil }

// giveBack adds a key that was not started to the queue again. If somebody has shut the queue down, it takes
// nothing back, and the key is reported instead.
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

// finishCall does with the key what the handler's answer asks for, and calls the logger and the hooks.
func (p *Pool[T]) finishCall(c *call[T]) {
	p.guarded(func() { c.Duration = p.options.Clock.Since(c.Started) })
	p.decide(c)
	p.count(c)
	switch c.Next {
	case NextRetry:
		p.retry(c)
	case NextRequeue:
		p.requeue(c)
	case NextInterrupted:
		if !c.interrupted() { // The handler has ErrAdded from elsewhere. Its key must not be lost.
			p.addAgain(c)
		}
	case NextForget:
		p.Forget(c.Key)
		p.queue.Forget(c.Key)
	case NextDrop:
		p.failures.add(c.Key, p.failedCall(c), failureCount{})
		p.queue.Forget(c.Key)
		if q, ok := p.queue.(GiveUpRecorder[T]); ok {
			q.GiveUp(c.Key, c.Attempt, c.Err)
		}
	}
	p.log(c)
	if c.fatal {
		p.fail(c.Err)
	}
	if c.Next == NextDrop && p.options.OnDrop != nil {
		p.options.OnDrop(c.ctx, c.Result)
	}
	if p.options.OnFinish != nil {
		p.options.OnFinish(c.ctx, c.Result)
	}
}

// decide finds out what becomes of the key.
func (p *Pool[T]) decide(c *call[T]) {
	if c.Err == nil {
		c.Next = NextForget
		return
	}
	if c.panic == nil && p.readError(c) { // What a panic was called with is no answer.
		return
	}
	c.Next = NextRetry
	// A handler that was cut short by the end of the pool has not had its last attempt.
	if p.options.MaxRetries == UnlimitedRetries || c.base.handling.Err() != nil {
		return
	}
	p.guarded(func() { p.countElsewhere(c) })
	if c.failed.calls >= p.options.MaxRetries {
		c.Next = NextDrop
	}
}

// readError reports whether the handler's error is an answer, and notes what it asks for. The methods of the error
// are the handler's code: if one of them panics, that is the failure of the key.
func (p *Pool[T]) readError(c *call[T]) bool {
	defer func() {
		if v := recover(); v != nil {
			p.notReturned(c, v)
		}
	}()
	return c.readAnswer()
}

// readAnswer is readError that lets panics pass.
func (c *call[T]) readAnswer() bool {
	var fatal *FatalError
	var terminal *TerminalError
	if errors.As(c.Err, &fatal) || errors.As(c.Err, &terminal) {
		c.Next, c.fatal = NextDrop, fatal != nil
		return true
	}
	if again, ok := as[Requeue](c.Err); ok {
		c.Next, c.after, c.priority = NextRequeue, again.After, again.Priority
		return true
	}
	if again, ok := as[RequeueAfterError](c.Err); ok {
		c.Next, c.after = NextRequeue, again.After
		return true
	}
	// If the handler's own context was canceled too, that is a failure. (OnStart may have made it by UntilAdded. If the
	// handler was also too slow, that is another error than Canceled.)
	endedOtherwise := errors.Is(c.ctx.Err(), context.Canceled) && !errors.Is(context.Cause(c.ctx), ErrAdded)
	if errors.Is(c.Err, ErrAdded) || errors.Is(c.Err, context.Canceled) && c.interrupted() && !endedOtherwise {
		c.Next = NextInterrupted
		return true
	}
	return false
}

// countElsewhere sets the number of failures to what the queue counts, if processes that share it may have failed too.
func (p *Pool[T]) countElsewhere(c *call[T]) {
	q, ok := p.queue.(RequeueCounter[T])
	if !ok || p.options.MaxRetries == NoRetries {
		return
	}
	// 0 may mean that the queue's limiter does not count by key.
	if n, err := q.NumRequeuesContext(context.Background(), c.Key); n > 0 && err == nil {
		c.failed.calls, c.Attempt = n, n+1
	}
}

// retry gives the key to the queue's limiter.
func (p *Pool[T]) retry(c *call[T]) {
	// Before AddRateLimited, which may panic: the key must not be lost.
	p.failures.add(c.Key, p.failedCall(c), failureCount{calls: c.failed.calls + 1})
	select {
	case p.anyFailing <- struct{}{}:
	default:
	}
	p.queue.AddRateLimited(c.Key)
	if p.queue.NumRequeues(c.Key) > 0 {
		p.failures.setLimited(c.Key)
	}
}

// requeue adds the key again, for a handler that asked for it.
func (p *Pool[T]) requeue(c *call[T]) {
	p.Forget(c.Key)
	p.addAgain(c)
	// After the add: the limiter may panic, and the key must not be lost.
	p.queue.Forget(c.Key)
}

// addAgain adds the key again after c.after.
func (p *Pool[T]) addAgain(c *call[T]) {
	p.addAfter(c, c.after)
	if c.after <= 0 && p.queue.ShuttingDown() {
		p.locked(func() { p.mu.refused[c.Key] = struct{}{} })
	}
}

// addAfter adds the key with its priority.
func (p *Pool[T]) addAfter(c *call[T], after time.Duration) {
	if p.priorities != nil {
		p.priorities.AddWithPriority(c.Key, c.priority, after)
	} else {
		p.queue.AddAfter(c.Key, after)
	}
}

// setFinished notes that w has finished its call, apart from Done.
func (p *Pool[T]) setFinished(w *worker[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.state, w.current = finished, current[T]{}
	p.notGetting.Broadcast()
}
