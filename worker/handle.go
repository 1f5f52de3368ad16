package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"
)

// handle does everything with a key that a worker has got, but Done, which is called once whatever happens:
// by the worker's next get or, after a panic or a runtime.Goexit, by conclude.
func (p *Pool[T]) handle(w *worker[T]) {
	w.phase, w.attempt = calling, 1
	known := false
	if p.failures.any() {
		var failed int
		failed, known = p.failures.of(w.key)
		w.attempt += failed
	}
	if p.plain && !known {
		err := p.handler(p.first, w.key)
		w.phase = settling
		if err == nil {
			p.queue.Forget(w.key) // This is all that settle would do.
		} else {
			p.settle(w, err)
		}
	} else {
		err := p.callWithContext(w.key, w.attempt)
		w.phase = settling
		p.settle(w, err)
	}
	w.phase = settled
}

// conclude does what has not been done because of a panic or a runtime.Goexit.
func (p *Pool[T]) conclude(w *worker[T]) {
	if w.phase == noKey {
		return
	}
	defer func() {
		w.mu.Lock()
		w.phase = noKey
		p.doneLocked(w)
	}()
	if w.phase != calling {
		return // A panic goes on, and ends the pool.
	}
	if v := recover(); v != nil {
		err := &PanicError{Value: v, Stack: debug.Stack()}
		if p.options.CrashOnPanic {
			p.logPanic(w.key, err)
			// The stack that the runtime prints is still that of the handler.
			panic(v)
		}
		p.settle(w, err)
		return
	}
	p.settle(w, ErrGoexit)
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
	var duration time.Duration
	if p.timed {
		duration = p.options.Clock.Since(w.started)
	}
	key := w.key
	next, after := p.decide(w, err)
	switch next {
	case NextRetry:
		p.failures.count(key)
		p.queue.AddRateLimited(key)
	case NextRequeue:
		p.forget(key)
		p.queue.AddAfter(key, after)
		if after <= 0 && p.queue.ShuttingDown() {
			p.failures.refuse(key)
		}
	default:
		p.forget(key)
	}
	if err != nil || p.options.OnFinish != nil || p.logger != nil {
		p.tell(w, err, next, duration)
	}
}

// decide finds out what the handler's answer asks for, and when the key comes again if it is NextRequeue.
func (p *Pool[T]) decide(w *worker[T], err error) (next Next, after time.Duration) {
	if err == nil {
		return NextForget, 0
	}
	if w.phase == settling { // The handler has returned. What a panic was called with is no answer.
		var (
			fatal    *FatalError
			terminal *TerminalError
			again    RequeueAfterError
			pointer  *RequeueAfterError
		)
		switch {
		case errors.As(err, &fatal), errors.As(err, &terminal):
			return NextDrop, 0
		case errors.As(err, &again):
			return NextRequeue, again.After
		case errors.As(err, &pointer):
			return NextRequeue, pointer.After
		}
	}
	// A handler that was cut short by DrainTimeout has not had its last attempt.
	if w.attempt > p.options.MaxRetries && p.handling.Err() == nil {
		return NextDrop, 0
	}
	return NextRetry, 0
}

func (p *Pool[T]) forget(key T) {
	p.failures.forget(key)
	p.queue.Forget(key)
}

// tell calls the hooks and the logger, and ends the pool if the error is fatal.
func (p *Pool[T]) tell(w *worker[T], err error, next Next, duration time.Duration) {
	key := w.key
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
	if e, ok := err.(*PanicError); ok && w.phase == calling {
		p.logPanic(w.key, e)
	}
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

func (p *Pool[T]) logPanic(key T, err *PanicError) {
	if p.logger != nil {
		p.logger.Error("The handler panicked", "key", key, "panic", err.Value, "stack", string(err.Stack))
	}
}
