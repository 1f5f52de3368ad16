package worker

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrGoexit is the failure of a handler, or of a [Runner] in a [Group], that called [runtime.Goexit] (which
// [testing.T.FailNow] does).
var ErrGoexit = errors.New("worker: runtime.Goexit was called")

// ErrDrainTimeout is the [context.Cause] of a handler's context that has ended because Options.DrainTimeout
// is over.
var ErrDrainTimeout = errors.New("worker: the time to finish after the end of Run's context is over")

// RequeueAfterError is what [RequeueAfter] returns.
type RequeueAfterError struct{ After time.Duration }

// RequeueAfter returns an error for a handler to return, bare or wrapped, that wants its key again after
// d (at once unless d is positive), without having failed. As with nil, earlier failures are forgotten.
func RequeueAfter(d time.Duration) error { return RequeueAfterError{d} }

// Error says when the key comes again.
func (e RequeueAfterError) Error() string { return fmt.Sprintf("again after %v", e.After) }

// TerminalError is what [Terminal] returns.
type TerminalError struct{ Err error }

// Terminal wraps an error so that its key does not come again: what is wrong does not mend by itself.
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

// Error tells the value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ShutdownError is what Run returns if it left something undone. A key is in one of the lists at most.
type ShutdownError[T comparable] struct {
	// Name is that of the queue.
	Name string
	// Unfinished are the keys whose handlers were still running when Run returned.
	Unfinished []T
	// NotStarted are the keys that were queued, in their order, and after them those whose handler wanted
	// them again at once ([RequeueAfter] of 0) when the queue was shut down already. The queue does not
	// have them any more.
	NotStarted []T
	// Failing are the keys whose last call has failed and for whose retry it was too late: those that
	// still waited for it (which is no matter of DrainTimeout) and those that have failed since, if only
	// because their context has ended. Keys that wait because of RequeueAfter are not among them.
	Failing []T
}

// Error tells how many keys there are of each kind, and the first few of them.
func (e *ShutdownError[T]) Error() string {
	var parts []string
	add := func(what string, keys []T) {
		if len(keys) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s: %s", len(keys), what, few(keys)))
		}
	}
	add("still running", e.Unfinished)
	add("queued and not started", e.NotStarted)
	add("failed and not retried", e.Failing)
	of := ""
	if e.Name != "" {
		of = fmt.Sprintf(" of queue %q", e.Name)
	}
	return fmt.Sprintf("worker: keys%s left undone: %s", of, strings.Join(parts, "; "))
}

// OnlyLeft reports whether err says that keys were left undone, and nothing else: whether it is a
// [ShutdownError], whatever its keys are, or several joined by [errors.Join], as a [Group] does. It is for
// programs to which that is no failure, because they look at everything again when they start:
//
//	if ctx.Err() != nil && worker.OnlyLeft(err) {
//		return nil
//	}
//
// Errors that are wrapped in any other way are taken for something else.
func OnlyLeft(err error) bool {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if !OnlyLeft(err) {
				return false
			}
		}
		return true
	case interface{ onlyLeft() }:
		return true
	}
	return false
}

// onlyLeft is how OnlyLeft knows a ShutdownError of any type of keys.
func (e *ShutdownError[T]) onlyLeft() {}

// few lists at most ten keys.
func few[T any](keys []T) string {
	const most = 10
	var b strings.Builder
	for i, key := range keys[:min(len(keys), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, key)
	}
	if len(keys) > most {
		b.WriteString(", …")
	}
	return b.String()
}

// empty reports whether nothing was left undone.
func (e *ShutdownError[T]) empty() bool {
	return len(e.Unfinished)+len(e.NotStarted)+len(e.Failing) == 0
}
