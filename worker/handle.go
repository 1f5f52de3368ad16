package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"
)

// call is one call of the handler.
type call[T comparable] struct {
	Result[T]
	ctx      context.Context
	cancel   context.CancelFunc // nil without a HandlerTimeout or a lease
	priority int                // of a key of a PriorityQueue
	failed   failureCount       // of the calls before
	panic    *PanicError        // Err, if the handler panicked

	// What follows is decided by settle.

	after time.Duration // if Next is NextRequeue
	fatal bool
}

// prepareCall finds out what is known of the key, and makes the handler's context.
func (p *Pool[T]) prepareCall(c *call[T]) {
	if c.failed = p.failures.of(c.Key); p.isStale(context.Background(), c.Key, c.failed) {
		p.failures.forget(c.Key)
		c.failed = failureCount{}
	}
	c.Attempt = c.failed.calls + 1
	if p.priorities != nil {
		c.priority = p.priorities.PriorityOf(c.Key)
	}
	c.Started = p.options.Clock.Now()
	ctx := p.firstCall
	if ctx == nil || c.Attempt > 1 {
		ctx = &callContext{Context: p.handling, attempt: c.Attempt, priority: c.priority, prioritized: p.priorities != nil}
		if p.logger != nil {
			ctx.logger, ctx.key = p.logger, c.Key
		}
	}
	c.ctx = ctx
	if p.options.HandlerTimeout > 0 {
		c.ctx, c.cancel = p.withTimeout(ctx)
	}
	if p.leaser != nil {
		endTimeout := c.cancel
		leased, release := p.leaser.Lease(c.ctx, c.Key)
		c.ctx, c.cancel = leased, func() {
			release()
			if endTimeout != nil {
				endTimeout()
			}
		}
	}
}

// notReturned notes why the handler has not returned: it panicked with v, or called runtime.Goexit.
func (p *Pool[T]) notReturned(c *call[T], v any) {
	if v == nil {
		c.Err = ErrGoexit
		return
	}
	c.panic = &PanicError{Value: v, Stack: debug.Stack()}
	c.Err = c.panic
	if p.options.CrashOnPanic {
		p.logPanic(c)
		// The stack that the runtime prints is still that of the handler.
		panic(v)
	}
}

// settle does with the key what the handler's answer asks for, and calls the hooks and the logger.
func (p *Pool[T]) settle(c *call[T]) {
	p.guarded(func() { c.Duration = p.options.Clock.Since(c.Started) })
	p.decide(c)
	p.count(c)
	switch c.Next {
	case NextRetry:
		p.retry(c)
	case NextRequeue:
		p.Forget(c.Key)
		p.addAfter(c, c.after)
		if c.after <= 0 && p.queue.ShuttingDown() {
			p.failures.set(c.Key, failureCount{})
		}
		// After the add: the limiter may panic, and the key must not be lost.
		p.queue.Forget(c.Key)
	case NextDrop:
		p.forget(c.Key)
		p.dropped.put(c.failedKey())
	case NextForget:
		p.forget(c.Key)
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

// decide finds out what the handler's answer asks for.
func (p *Pool[T]) decide(c *call[T]) {
	if c.Err == nil {
		c.Next = NextForget
		return
	}
	if c.panic == nil && p.readError(c) { // What a panic was called with is no answer.
		return
	}
	c.Next = NextRetry
	// A handler that was cut short by DrainTimeout has not had its last attempt.
	if p.options.allows(c.failed.calls) || p.handling.Err() != nil {
		return
	}
	c.Next = NextDrop
}

// readError reports whether the handler's error is an answer, and what it asks for. The methods of the error are the
// handler's code: if one of them panics, that is the failure of the key.
func (p *Pool[T]) readError(c *call[T]) bool {
	defer func() {
		if v := recover(); v != nil {
			p.notReturned(c, v)
		}
	}()
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
	return false
}

// allows reports whether a key that has failed so many times before may be retried once more.
func (o *Options[T]) allows(failed int) bool {
	return o.MaxRetries == UnlimitedRetries || failed < o.MaxRetries
}

// as finds an error of the struct type E in err, also if it is there by pointer. A nil pointer is none.
func as[E error, P interface {
	*E
	error
}](err error) (E, bool) {
	var e E
	if errors.As(err, &e) {
		return e, true
	}
	var pointer P
	if errors.As(err, &pointer) && pointer != nil {
		return *pointer, true
	}
	return e, false
}

// retry gives the key to the queue's limiter.
func (p *Pool[T]) retry(c *call[T]) {
	c.failed = failureCount{calls: c.failed.calls + 1}
	// Before AddRateLimited, which may panic: the key must not be lost.
	p.failures.errors.put(c.failedKey())
	p.dropped.forget(c.Key) // It was dropped before, and somebody has added it again.
	p.failures.set(c.Key, c.failed)
	select {
	case p.anyFailing <- struct{}{}:
	default:
	}
	p.queue.AddRateLimited(c.Key)
	if c.failed.limited = p.queue.NumRequeues(c.Key) > 0; c.failed.limited {
		p.failures.set(c.Key, c.failed)
	}
}

func (c *call[T]) failedKey() FailedKey[T] {
	return FailedKey[T]{Key: c.Key, Attempt: c.Attempt, Err: errorText(c.Err), Time: c.Started.Add(c.Duration)}
}

// addAfter adds the key with its priority.
func (p *Pool[T]) addAfter(c *call[T], after time.Duration) {
	if p.priorities != nil {
		p.priorities.AddWithPriority(c.Key, c.priority, after)
	} else {
		p.queue.AddAfter(c.Key, after)
	}
}

func (p *Pool[T]) forget(key T) {
	p.Forget(key)
	p.queue.Forget(key)
}

// Forget makes the pool forget that key has failed or was dropped: for a program that removes a key from the queue, or
// handles it, by itself. (If the key was failing, the pool finds out within a minute; see [Pool.Snapshot].) It
// does not touch the queue.
func (p *Pool[T]) Forget(key T) {
	p.failures.forget(key)
	p.dropped.forget(key)
}

// sweepFailures forgets what is stale, until enough returns true: the queue may be slow to answer.
func (p *Pool[T]) sweepFailures(enough func() bool) {
	p.failures.sweep(func(key T, c failureCount) bool { return p.isStale(context.Background(), key, c) }, enough)
}

// isStale reports whether a key that has failed so often was removed from the queue since, or forgotten by
// somebody else. A key counts as failing as long as the queue cannot answer. isStale waits for the answer until ctx ends.
func (p *Pool[T]) isStale(ctx context.Context, key T, c failureCount) bool {
	if c.limited && p.isForgotten(ctx, key) {
		return true
	}
	if c.calls == 0 || p.finder == nil || p.queue.ShuttingDown() { // A shutdown drops keys that are to be reported.
		return false
	}
	return !p.finder.Has(key)
}

// isForgotten reports whether the queue's limiter counts no failures of key.
func (p *Pool[T]) isForgotten(ctx context.Context, key T) bool {
	if p.requeues == nil {
		return p.queue.NumRequeues(key) == 0
	}
	n, err := p.requeues.NumRequeuesContext(ctx, key)
	return n == 0 && err == nil
}

func (p *Pool[T]) log(c *call[T]) {
	if p.logger == nil {
		return
	}
	p.logPanic(c)
	level, message := slog.LevelDebug, "Handled a key"
	switch c.Next {
	case NextRetry:
		level, message = slog.LevelWarn, "The handler failed, its key comes again"
	case NextDrop:
		level, message = slog.LevelError, "The handler failed, its key is dropped"
	}
	// Not the handler's context, which may have ended.
	p.logger.LogAttrs(p.handling, level, message, slog.Any("key", c.Key), slog.String("next", c.Next.String()),
		slog.Int("attempt", c.Attempt), slog.Duration("duration", c.Duration), slog.Any("err", c.Err))
}

func (p *Pool[T]) logPanic(c *call[T]) {
	if p.logger != nil && c.panic != nil {
		p.logger.Error("The handler panicked", "key", c.Key, "panic", c.panic.Value, "stack", string(c.panic.Stack))
	}
}
