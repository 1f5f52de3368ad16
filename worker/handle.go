package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// call is one call of the handler.
type call[T comparable] struct {
	key      T
	attempt  int
	ctx      context.Context
	cancel   context.CancelFunc // nil without a HandlerTimeout
	started  time.Time
	duration time.Duration
	err      error       // what the handler returned, or why it did not return
	panic    *PanicError // err, if the handler panicked
	next     Next
	after    time.Duration // if next is NextRequeue
	fatal    bool
}

// settle does with the key what the handler's answer asks for, and calls the hooks and the logger.
func (p *Pool[T]) settle(c *call[T]) {
	p.guarded(func() { c.duration = p.options.Clock.Since(c.started) })
	p.decide(c)
	switch c.next {
	case NextRetry:
		p.failures.count(c.key)
		p.queue.AddRateLimited(c.key)
	case NextRequeue:
		p.forget(c.key)
		p.queue.AddAfter(c.key, c.after)
		if c.after <= 0 && p.queue.ShuttingDown() {
			p.failures.refuse(c.key)
		}
	default:
		p.forget(c.key)
	}
	p.log(c)
	if c.fatal {
		p.fail(c.err)
	}
	if c.next == NextDrop && p.options.OnDrop != nil {
		p.options.OnDrop(c.key, c.err)
	}
	if p.options.OnFinish != nil {
		p.options.OnFinish(c.key, c.duration, c.err, c.next)
	}
}

// decide finds out what the handler's answer asks for.
func (p *Pool[T]) decide(c *call[T]) {
	if c.err == nil {
		c.next = NextForget
		return
	}
	if c.panic == nil { // What a panic was called with is no answer.
		var (
			fatal    *FatalError
			terminal *TerminalError
			again    RequeueAfterError
			pointer  *RequeueAfterError
		)
		switch {
		case errors.As(c.err, &fatal):
			c.next, c.fatal = NextDrop, true
			return
		case errors.As(c.err, &terminal):
			c.next = NextDrop
			return
		case errors.As(c.err, &again):
			c.next, c.after = NextRequeue, again.After
			return
		case errors.As(c.err, &pointer):
			c.next, c.after = NextRequeue, pointer.After
			return
		}
	}
	c.next = NextRetry
	// A handler that was cut short by DrainTimeout has not had its last attempt.
	if c.attempt > p.options.MaxRetries && p.handling.Err() == nil {
		c.next = NextDrop
	}
}

func (p *Pool[T]) forget(key T) {
	p.failures.forget(key)
	p.queue.Forget(key)
}

func (p *Pool[T]) log(c *call[T]) {
	if p.logger == nil {
		return
	}
	p.logPanic(c)
	level, message := slog.LevelDebug, "Handled a key"
	switch c.next {
	case NextRetry:
		level, message = slog.LevelWarn, "The handler failed, its key comes again"
	case NextDrop:
		level, message = slog.LevelError, "The handler failed, its key is dropped"
	}
	// Not the handler's context, which may have ended.
	p.logger.LogAttrs(p.handling, level, message, slog.Any("key", c.key), slog.String("next", c.next.String()),
		slog.Int("attempt", c.attempt), slog.Duration("duration", c.duration), slog.Any("err", c.err))
}

func (p *Pool[T]) logPanic(c *call[T]) {
	if p.logger != nil && c.panic != nil {
		p.logger.Error("The handler panicked", "key", c.key, "panic", c.panic.Value, "stack", string(c.panic.Stack))
	}
}
