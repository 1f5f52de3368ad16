package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"
)

// call is one call of the handler.
type call struct {
	err     error
	attempt int
	// phase is how far the call got, so that conclude knows whose panic or Goexit it sees.
	phase phase
}

type phase uint8

const (
	handling phase = iota // OnStart and the handler
	settling              // what follows from the answer
	done                  // Done was called
)

// handle does everything with a key that a worker has got. Whatever happens, its Done is called once,
// after all else.
func (p *Pool[T]) handle(w *worker[T], key T) {
	c := call{attempt: 1}
	if p.failures.any() {
		c.attempt += p.failures.of(key)
	}
	// Deferred, because after a panic or a runtime.Goexit nothing else is run.
	defer p.conclude(w, &c)
	if p.plain && c.attempt == 1 {
		c.err = p.handler(p.first, key)
	} else {
		c.err = p.callWithContext(key, c.attempt)
	}
	c.phase = settling
	if p.plain && c.attempt == 1 && c.err == nil {
		p.queue.Forget(key) // This is all that settle would do.
	} else {
		p.settle(w, &c)
	}
	c.phase = done
	w.mu.Lock()
	p.queue.Done(key)
}

// conclude does what handle has not done because of a panic or a runtime.Goexit.
func (p *Pool[T]) conclude(w *worker[T], c *call) {
	if c.phase == done {
		return
	}
	key := w.key
	defer p.queue.Done(key)
	defer w.mu.Lock()
	if c.phase == settling {
		return // A panic goes on, and ends the pool.
	}
	c.err = ErrGoexit
	if v := recover(); v != nil {
		stack := debug.Stack()
		c.err = &PanicError{Value: v, Stack: stack}
		if p.logger != nil {
			p.logger.Error("The handler panicked", "key", key, "panic", v, "stack", string(stack))
		}
		if p.options.CrashOnPanic {
			// The stack that the runtime prints is still that of the handler.
			panic(v)
		}
	}
	p.settle(w, c)
}

// callWithContext calls the handler with a context of its own.
func (p *Pool[T]) callWithContext(key T, attempt int) error {
	ctx, cancel := p.context(key, attempt)
	defer cancel()
	return p.handler(p.onStart(ctx, key), key)
}

// context returns a context for the handler, and what ends it.
func (p *Pool[T]) context(key T, attempt int) (context.Context, context.CancelFunc) {
	ctx := &callContext{Context: p.handling, attempt: attempt, logger: p.logger}
	if p.logger != nil {
		ctx.key = key
	}
	if p.options.HandlerTimeout > 0 {
		return withTimeout(ctx, p.options.Clock, p.options.HandlerTimeout)
	}
	return ctx, func() {}
}

// onStart returns what the hook makes of the handler's context.
func (p *Pool[T]) onStart(ctx context.Context, key T) context.Context {
	if p.options.OnStart == nil {
		return ctx
	}
	if of := p.options.OnStart(ctx, key); of != nil {
		return of
	}
	return ctx
}

// settle does with the key what the handler's answer asks for, and tells those who want to know.
func (p *Pool[T]) settle(w *worker[T], c *call) {
	key, next := w.key, p.decide(c)
	switch next {
	case NextRetry:
		p.failures.count(key)
		p.queue.AddRateLimited(key)
	case NextRequeue:
		p.forget(key)
		var again RequeueAfterError
		errors.As(c.err, &again)
		p.queue.AddAfter(key, again.After)
	default:
		p.forget(key)
	}
	if c.err != nil || p.options.OnFinish != nil || p.logger != nil {
		p.tell(w, c, next)
	}
}

// decide finds out what the handler's answer asks for.
func (p *Pool[T]) decide(c *call) Next {
	if c.err == nil {
		return NextForget
	}
	if c.phase == settling { // The handler has returned. What a panic was called with is no answer.
		var (
			fatal    *FatalError
			terminal *TerminalError
			again    RequeueAfterError
		)
		switch {
		case errors.As(c.err, &fatal), errors.As(c.err, &terminal):
			return NextDrop
		case errors.As(c.err, &again):
			return NextRequeue
		}
	}
	if p.options.MaxRetries > 0 && c.attempt > p.options.MaxRetries {
		return NextDrop
	}
	return NextRetry
}

func (p *Pool[T]) forget(key T) {
	p.failures.forget(key)
	p.queue.Forget(key)
}

// tell calls the hooks and the logger, and ends the pool if the error is fatal.
func (p *Pool[T]) tell(w *worker[T], c *call, next Next) {
	key := w.key
	var duration time.Duration
	if p.timed {
		duration = p.options.Clock.Since(w.started)
	}
	if p.logger != nil {
		p.log(key, c, next, duration)
	}
	if next == NextDrop {
		var fatal *FatalError
		if c.phase == settling && errors.As(c.err, &fatal) {
			p.fail(c.err)
		}
		if p.options.OnDrop != nil {
			p.options.OnDrop(key, c.err)
		}
	}
	if p.options.OnFinish != nil {
		p.options.OnFinish(key, duration, c.err, next)
	}
}

func (p *Pool[T]) log(key T, c *call, next Next, duration time.Duration) {
	level, message := slog.LevelDebug, "Handled a key"
	switch next {
	case NextRetry:
		level, message = slog.LevelWarn, "The handler failed, its key comes again"
	case NextDrop:
		level, message = slog.LevelError, "The handler failed, its key is dropped"
	}
	// Not the handler's context, which may have ended.
	if p.logger.Enabled(p.handling, level) {
		p.logger.LogAttrs(p.handling, level, message, slog.Any("key", key), slog.String("next", next.String()),
			slog.Int("attempt", c.attempt), slog.Duration("duration", duration), slog.Any("err", c.err))
	}
}
