package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// What a panic does depends on whose code it was, and so does runtime.Goexit, which t.FailNow calls:
//
//	the handler and its error   failWithPanic: the key fails, with a PanicError or ErrGoexit
//	OnFinish, OnGiveUp          work: a PanicError ends the pool; after a Goexit another goroutine takes the
//	                            worker's place
//	Ready, List, OnStuck, OnLeft
//	                            onOwnGoroutine: a PanicError ends the pool; a Goexit ends no other goroutine
//	the queue, the logger       catchPanic or work: a PanicError ends the pool
//	what a Tracker without a pool calls
//	                            In Begin, End and other methods the caller gets the panic. On the tracker's
//	                            goroutines logPanic logs it.

// PanicError is the failure of a handler that panicked.
type PanicError struct {
	// Value is what panic was called with.
	Value any
	// Stack is the goroutine's stack as [debug.Stack] returns it, with the line that panicked.
	Stack []byte
}

// newPanicError must be called by the deferred function that has recovered v: that has the panic's stack.
func newPanicError(v any) *PanicError { return &PanicError{Value: v, Stack: debug.Stack()} }

// Error returns the value's text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrGoexit is the failure of a handler that called [runtime.Goexit], as t.FailNow does.
var ErrGoexit = errors.New("worker: runtime.Goexit was called")

// failWithPanic notes that the handler, or a method of its error, has panicked with v. It must be called by
// the deferred function that has recovered v. With CrashOnPanic it panics again, to end the process. Before
// that the call is not counted, and Done is not called, as in a program without this package.
func (c *Tracked[T]) failWithPanic(v any) {
	c.result.Err = newPanicError(v)
	if t := c.tracker; t.options.CrashOnPanic {
		c.crashing = true
		t.log(c.base, slog.LevelError, "The handler panicked", "key", c.result.Key, "panic", v)
		panic(v) // The stack that the runtime prints is still that of the handler.
	}
}

// catchPanic runs foreign code other than the handler. If it panics, catchPanic calls panicked.
func (t *Tracker[T]) catchPanic(foreign func()) {
	defer func() {
		if v := recover(); v != nil {
			t.panicked(v)
		}
	}()
	foreign()
}

// panicked is the panicked of a pool's tracker: the pool ends.
func (p *Pool[T]) panicked(v any) {
	if p.options.CrashOnPanic {
		panic(v)
	}
	p.fail(newPanicError(v))
}

// logPanic is the panicked of a tracker without a pool, which has nothing that it could end.
func (t *Tracker[T]) logPanic(v any) {
	t.log(context.Background(), slog.LevelError, "A hook, the queue or its limiter panicked",
		"panic", v, "stack", string(debug.Stack()))
}

// onOwnGoroutine runs foreign code on a goroutine of its own, and returns its error, or ErrGoexit if it has
// called runtime.Goexit, which ends that goroutine alone, or panicked: then catchPanic has called panicked.
func (t *Tracker[T]) onOwnGoroutine(foreign func() error) error {
	err := ErrGoexit
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		t.catchPanic(func() { err = foreign() })
	}()
	<-returned
	return err
}
