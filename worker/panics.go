package worker

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// PanicError is the failure of a handler that panicked.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // the goroutine's stack, as debug.Stack returns it
}

// Error returns the value's text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrGoexit is the failure of a handler that called [runtime.Goexit], as t.FailNow does.
var ErrGoexit = errors.New("worker: runtime.Goexit was called")

// panickedCall is a call that panicked. A tracker keeps the last ones, for KeySnapshot.PanicStack.
type panickedCall[T comparable] struct {
	key   T
	ended time.Time
	stack string
}

const (
	maxPanics = 32
	maxStack  = 8 << 10 // bytes
)

func (t *Tracker[T]) addPanicLocked(c panickedCall[T]) {
	if len(t.mu.panics) == maxPanics {
		t.mu.panics = slices.Delete(t.mu.panics, 0, 1)
	}
	t.mu.panics = append(t.mu.panics, c)
}

// panicStackLocked returns the stack of the last call for key that panicked since then, or nothing.
func (t *Tracker[T]) panicStackLocked(key T, since time.Time) (stack string) {
	for _, c := range t.mu.panics {
		if c.key == key && !c.ended.Before(since) {
			stack = c.stack
		}
	}
	return stack
}
