package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Next is what becomes of a key after a call of its handler. When the queue is shut down, and takes no keys
// back, NextRequeue and NextRetry are what would have become of it; see [Left].
type Next uint8

const (
	// NextForget: the key is done, and its failures are forgotten.
	NextForget Next = iota
	// NextRequeue: the handler asked for the key again. See [Requeue] and [RequeueAfter].
	NextRequeue
	// NextRetry: the handler has failed, and the key was given to the queue's limiter.
	NextRetry
	// NextDrop: the handler has failed, and the key does not come again.
	NextDrop
	// NextInterrupted: the handler was interrupted, because its key was added again, and the key comes again at once. Its
	// failures are neither counted nor forgotten, and the queue's limiter hears nothing. See [UntilAdded].
	NextInterrupted
)

// String returns "forget", "requeue", "retry", "drop" or "interrupted".
func (n Next) String() string {
	if names := [...]string{"forget", "requeue", "retry", "drop", "interrupted"}; int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("Next(%d)", uint8(n))
}

// Result is what a call of the handler has come to.
type Result[T comparable] struct {
	Key T
	// Attempt is how many times in a row the key was handled, this call included. With MaxRetries over a [RequeueCounter],
	// the attempt that failed has what that counts.
	Attempt int
	// Started is when the call began, and Duration how long OnStart and the handler took.
	Started  time.Time
	Duration time.Duration
	// Err is what the handler returned, a [*PanicError] or [ErrGoexit].
	Err error
	// Next is what becomes of the key.
	Next Next
}

// ErrGoexit is the failure of a handler, or of a [Runner] in a [Group], that called [runtime.Goexit], as t.FailNow does.
var ErrGoexit = errors.New("worker: runtime.Goexit was called")

// Requeue is an error for a handler to return, bare or wrapped, that wants its key again after a time and with a
// priority, without having failed. As with nil, earlier failures are forgotten.
type Requeue struct {
	// After is the time, or at once unless it is positive.
	After time.Duration
	// Priority is the key's new priority. If the key was added meanwhile with a higher one, it keeps that. In a
	// queue that is no [PriorityQueue] it means nothing.
	Priority int
}

// Error describes when the key comes again.
func (r Requeue) Error() string {
	return fmt.Sprintf("again after %v with priority %d", r.After, r.Priority)
}

// RequeueAfterError is what [RequeueAfter] returns.
type RequeueAfterError struct{ After time.Duration }

// RequeueAfter returns an error for a handler to return, bare or wrapped, that wants its key again after d (at once unless d
// is positive), with the priority that it has, without having failed. As with nil, earlier failures are forgotten.
func RequeueAfter(d time.Duration) error { return RequeueAfterError{d} }

// Error describes when the key comes again.
func (e RequeueAfterError) Error() string { return fmt.Sprintf("again after %v", e.After) }

// TerminalError is what [Terminal] returns.
type TerminalError struct{ Err error }

// Terminal wraps an error so that its key does not come again: it would only fail in the same way. It returns nil if err is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &TerminalError{err}
}

// Error is that of the error within.
func (e *TerminalError) Error() string { return fmt.Sprint(e.Err) }

// Unwrap returns the error within.
func (e *TerminalError) Unwrap() error { return e.Err }

// FatalError is what [Fatal] returns.
type FatalError struct{ Err error }

// Fatal wraps an error so that its key does not come again and Run ends, as after [Pool.Stop] of [Running]
// whatever Options.Drain is, and returns it. It returns nil if err is nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &FatalError{err}
}

// Error is that of the error within.
func (e *FatalError) Error() string { return fmt.Sprint(e.Err) }

// Unwrap returns the error within.
func (e *FatalError) Unwrap() error { return e.Err }

// PanicError is the failure of a handler that panicked.
type PanicError struct {
	// Value is what panic was called with.
	Value any
	// Stack is the goroutine's stack as [debug.Stack] returns it, with the line that panicked.
	Stack []byte
}

// Error returns the value's text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// NextOf returns, for a middleware, what becomes of the key if its call returns err. A failure is NextRetry even if the key
// will be dropped for having failed too often. The context is that of the call or made from it.
func NextOf(ctx context.Context, err error) Next {
	c := call[struct{}]{Result: Result[struct{}]{Err: err}, ctx: ctx, base: callOf(ctx)}
	if err != nil {
		c.readAnswer()
	}
	return c.Next
}

// finishCall does with the key what the handler's answer asks for, and calls the logger and the hooks.
func (p *Pool[T]) finishCall(c *call[T]) {
	p.guarded(func() { c.Duration = p.options.Clock.Since(c.Started) })
	if c.Err != nil { // Otherwise it stays NextForget.
		p.decide(c)
	}
	p.count(c)
	switch c.Next {
	case NextRetry:
		p.retry(c)
	case NextRequeue:
		p.Forget(c.Key)
		p.addAgain(c)
		p.queue.Forget(c.Key) // After the add: the limiter may panic, and the key must not be lost.
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

// decide finds out what becomes of a key whose call did not return nil.
func (p *Pool[T]) decide(c *call[T]) {
	c.Next = NextRetry
	if c.panic == nil { // What a panic was called with is no answer.
		p.readError(c)
	}
	// A handler that was cut short by the end of the pool has not had its last attempt.
	if c.Next != NextRetry || p.options.MaxRetries == UnlimitedRetries || c.base.handling.Err() != nil {
		return
	}
	if q, ok := p.queue.(RequeueCounter[T]); ok && p.options.MaxRetries != NoRetries {
		p.guarded(func() {
			// Processes that share the queue may have failed, too. 0 may mean that its limiter does not count by key.
			if n, err := q.NumRequeuesContext(context.Background(), c.Key); n > 0 && err == nil {
				c.failed.calls, c.Attempt = n, n+1
			}
		})
	}
	if c.failed.calls >= p.options.MaxRetries {
		c.Next = NextDrop
	}
}

// readError is readAnswer. The methods of the error are the handler's code: if one of them panics, the key fails by that.
func (p *Pool[T]) readError(c *call[T]) {
	defer func() {
		if v := recover(); v != nil {
			p.notReturned(c, v)
		}
	}()
	c.readAnswer()
}

// readAnswer sets what the handler's error asks for. It is a failure if it asks for nothing else, or one of its methods panics.
func (c *call[T]) readAnswer() {
	c.Next = NextRetry
	var fatal *FatalError
	var terminal *TerminalError
	if errors.As(c.Err, &fatal) || errors.As(c.Err, &terminal) {
		c.Next, c.fatal = NextDrop, fatal != nil
	} else if again, ok := as[Requeue](c.Err); ok {
		c.Next, c.after, c.priority = NextRequeue, again.After, again.Priority
	} else if again, ok := as[RequeueAfterError](c.Err); ok {
		c.Next, c.after = NextRequeue, again.After
	} else if errors.Is(c.Err, ErrAdded) || errors.Is(c.Err, context.Canceled) && c.interrupted() && !c.endedOtherwise() {
		c.Next = NextInterrupted
	}
}

// endedOtherwise reports whether the handler's own context was canceled, but not by UntilAdded, by which OnStart may have made
// it. (If the handler was also too slow, the context's error is not Canceled.)
func (c *call[T]) endedOtherwise() bool {
	return errors.Is(c.ctx.Err(), context.Canceled) && !errors.Is(context.Cause(c.ctx), ErrAdded)
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
	case NextInterrupted:
		message = "The handler was interrupted, its key was added again"
	}
	if !p.logger.Enabled(p.handling, level) {
		return
	}
	attrs := []slog.Attr{slog.Any("key", c.Key), slog.String("next", c.Next.String()),
		slog.Int("attempt", c.Attempt), slog.Duration("duration", c.Duration), slog.Any("err", c.Err)}
	// Not the handler's context, which may have ended.
	p.logger.LogAttrs(p.handling, level, message, p.withCauses(attrs, c.Key)...)
}

// withCauses returns attrs and the causes of key, which a worker holds, if there are any.
func (p *Pool[T]) withCauses(attrs []slog.Attr, key T) []slog.Attr {
	if causes := p.causesOf(key); !causes.IsZero() {
		attrs = append(attrs, slog.String("causes", causes.String()))
	}
	return attrs
}

func (p *Pool[T]) logPanic(c *call[T]) {
	if p.logger != nil && c.panic != nil {
		p.logger.Error("The handler panicked", "key", c.Key, "panic", c.panic.Value, "stack", string(c.panic.Stack))
	}
}
