package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"
)

// handle does everything with a key that a worker has got. Whatever happens, its Done is called once,
// after all else: if not here, because of a panic or a runtime.Goexit, then by conclude.
func (p *Pool[T]) handle(w *worker[T], key T) {
	w.phase, w.attempt = handling, 1
	if p.failures.any() {
		w.attempt += p.failures.of(key)
	}
	if p.plain && w.attempt == 1 {
		err := p.handler(p.first, key)
		w.phase = settling
		if err == nil {
			p.queue.Forget(key) // This is all that settle would do.
		} else {
			p.settle(w, err)
		}
	} else {
		err := p.callWithContext(key, w.attempt)
		w.phase = settling
		p.settle(w, err)
	}
	w.phase = waiting
	w.mu.Lock()
	p.queue.Done(key)
}

// conclude does what handle has not done because of a panic or a runtime.Goexit.
func (p *Pool[T]) conclude(w *worker[T]) {
	if w.phase == waiting {
		return
	}
	key := w.key
	defer p.queue.Done(key)
	defer w.mu.Lock()
	defer func() { w.phase = waiting }()
	if w.phase == settling {
		return // A panic goes on, and ends the pool.
	}
	err := ErrGoexit
	if v := recover(); v != nil {
		stack := debug.Stack()
		err = &PanicError{Value: v, Stack: stack}
		if p.logger != nil {
			p.logger.Error("The handler panicked", "key", key, "panic", v, "stack", string(stack))
		}
		if p.options.CrashOnPanic {
			// The stack that the runtime prints is still that of the handler.
			panic(v)
		}
	}
	p.settle(w, err)
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
func (p *Pool[T]) settle(w *worker[T], err error) {
	key, next := w.key, p.decide(w, err)
	switch next {
	case NextRetry:
		p.failures.count(key)
		p.queue.AddRateLimited(key)
	case NextRequeue:
		p.forget(key)
		var again RequeueAfterError
		errors.As(err, &again)
		p.queue.AddAfter(key, again.After)
	default:
		p.forget(key)
	}
	if err != nil || p.options.OnFinish != nil || p.logger != nil {
		p.tell(w, err, next)
	}
}

// decide finds out what the handler's answer asks for.
func (p *Pool[T]) decide(w *worker[T], err error) Next {
	if err == nil {
		return NextForget
	}
	if w.phase == settling { // The handler has returned. What a panic was called with is no answer.
		var (
			fatal    *FatalError
			terminal *TerminalError
			again    RequeueAfterError
		)
		switch {
		case errors.As(err, &fatal), errors.As(err, &terminal):
			return NextDrop
		case errors.As(err, &again):
			return NextRequeue
		}
	}
	if p.options.MaxRetries > 0 && w.attempt > p.options.MaxRetries {
		return NextDrop
	}
	return NextRetry
}

func (p *Pool[T]) forget(key T) {
	p.failures.forget(key)
	p.queue.Forget(key)
}

// tell calls the hooks and the logger, and ends the pool if the error is fatal.
func (p *Pool[T]) tell(w *worker[T], err error, next Next) {
	key := w.key
	var duration time.Duration
	if p.timed {
		duration = p.options.Clock.Since(w.started)
	}
	if p.logger != nil {
		p.log(w, err, next, duration)
	}
	if next == NextDrop {
		var fatal *FatalError
		if w.phase == settling && errors.As(err, &fatal) {
			p.fail(err)
		}
		if p.options.OnDrop != nil {
			p.options.OnDrop(key, err)
		}
	}
	if p.options.OnFinish != nil {
		p.options.OnFinish(key, duration, err, next)
	}
}

func (p *Pool[T]) log(w *worker[T], err error, next Next, duration time.Duration) {
	level, message := slog.LevelDebug, "Handled a key"
	switch next {
	case NextRetry:
		level, message = slog.LevelWarn, "The handler failed, its key comes again"
	case NextDrop:
		level, message = slog.LevelError, "The handler failed, its key is dropped"
	}
	// Not the handler's context, which may have ended.
	if p.logger.Enabled(p.handling, level) {
		p.logger.LogAttrs(p.handling, level, message, slog.Any("key", w.key), slog.String("next", next.String()),
			slog.Int("attempt", w.attempt), slog.Duration("duration", duration), slog.Any("err", err))
	}
}
