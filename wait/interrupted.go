package wait

import (
	"context"
	"errors"
)

// timedOut is the text of ErrWaitTimeout, and of an interruption without a cause. It is apimachinery's, word
// for word, because programs and alerts look for it.
const timedOut = "timed out waiting for the condition"

// ErrWaitTimeout is returned when a wait has used up its tries. A wait whose context ends returns that
// context's error instead: [Interrupted] recognizes both.
var ErrWaitTimeout = ErrorInterrupted(errors.New(timedOut))

// Interrupted reports whether a wait ended before the condition was true or failed: whether err is, or wraps,
// a result of [ErrorInterrupted], context.Canceled or context.DeadlineExceeded. Interrupted(nil) is false. It
// does not recognize the corresponding error of k8s.io/apimachinery, which is of another type.
func Interrupted(err error) bool {
	return errors.Is(err, interruption{}) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// ErrorInterrupted returns an error that has the text of cause, wraps it, and makes [Interrupted]
// return true. It returns a cause that is itself a result of ErrorInterrupted. Without a cause the error says
// that a wait timed out.
func ErrorInterrupted(cause error) error {
	if already, ok := cause.(interruption); ok {
		return already
	}
	return interruption{cause: cause}
}

// interruption marks an error as the end of a wait. It is a value, not a pointer, so that two marks of one
// cause are equal.
type interruption struct {
	cause error // may be nil
}

func (i interruption) Error() string {
	if i.cause == nil {
		return timedOut
	}
	return i.cause.Error()
}

func (i interruption) Unwrap() error { return i.cause }

// Is makes the mark without a cause match every mark.
func (i interruption) Is(target error) bool { return target == error(interruption{}) }
