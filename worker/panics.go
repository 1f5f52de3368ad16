package worker

import (
	"errors"
	"fmt"
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
