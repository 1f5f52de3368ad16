package worker

import (
	"errors"
	"fmt"
	"time"
)

// ErrGoexit is the failure of a handler, or of a [Runner] in a [Group], that called [runtime.Goexit] (which
// [testing.T.FailNow] does).
var ErrGoexit = errors.New("worker: runtime.Goexit was called")

// A handler's context ends with its call, and with Run if the handler has not returned by then. Then its [context.Cause] is
// ErrDrainTimeout, ErrStopped or, if Run's context has ended and Options.Drain is [Nothing], that of Run's context.
var (
	// ErrDrainTimeout is the cause when Options.DrainTimeout is over.
	ErrDrainTimeout = errors.New("worker: the time to finish after the end of Run's context is over")
	// ErrStopped is the cause after [Pool.Stop] of [Nothing].
	ErrStopped = errors.New("worker: the pool was stopped, and does not wait for its handlers")
	// ErrCanceled is the cause after [Pool.Cancel].
	ErrCanceled = errors.New("worker: Cancel was called for the key")
	// ErrAdded is the cause of the end of a context of [UntilAdded]. A handler that returns it has not failed: see
	// [NextInterrupted].
	ErrAdded = errors.New("worker: the key was added again")
)

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

// RequeueAfter returns an error for a handler to return, bare or wrapped, that wants its key again after
// d (at once unless d is positive), with the priority that it has, without having failed. As with nil, earlier
// failures are forgotten.
func RequeueAfter(d time.Duration) error { return RequeueAfterError{d} }

// Error describes when the key comes again.
func (e RequeueAfterError) Error() string { return fmt.Sprintf("again after %v", e.After) }

// TerminalError is what [Terminal] returns.
type TerminalError struct{ Err error }

// Terminal wraps an error so that its key does not come again: the handler would only fail in the same way.
// It returns nil if err is nil.
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
