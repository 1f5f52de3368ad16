package wait_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/keyedqueue/workqueue/wait"
)

// incomparable is an error that must not be compared with ==.
type incomparable struct{ lines []string }

func (e incomparable) Error() string { return fmt.Sprint(e.lines) }

func TestInterrupted(t *testing.T) {
	plain := errors.New("plain")
	tests := []struct {
		name string
		err  error
		want bool
	}{
		{"nil", nil, false},
		{"another error", plain, false},
		{"timed out", wait.ErrWaitTimeout, true},
		{"marked", wait.ErrorInterrupted(plain), true},
		{"marked without a cause", wait.ErrorInterrupted(nil), true},
		{"marked, wrapped", fmt.Errorf("no luck: %w", wait.ErrorInterrupted(plain)), true},
		{"marked, joined", errors.Join(plain, wait.ErrorInterrupted(plain)), true},
		{"marked, its text only", fmt.Errorf("no luck: %v", wait.ErrorInterrupted(plain)), false},
		{"cancelled", context.Canceled, true},
		{"cancelled, wrapped", fmt.Errorf("no luck: %w", context.Canceled), true},
		{"deadline", context.DeadlineExceeded, true},
		{"deadline, wrapped", fmt.Errorf("no luck: %w", context.DeadlineExceeded), true},
		{"incomparable", incomparable{}, false},
		{"incomparable, marked", wait.ErrorInterrupted(incomparable{}), true},
	}
	for _, tt := range tests {
		if got := wait.Interrupted(tt.err); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestErrorInterrupted(t *testing.T) {
	cause := named{"the cause"}
	marked := wait.ErrorInterrupted(cause)
	if marked.Error() != "the cause" {
		t.Errorf("text %q", marked)
	}
	if !errors.Is(marked, cause) || errors.Unwrap(marked) != error(cause) {
		t.Error("does not wrap its cause")
	}
	if wait.ErrorInterrupted(marked) != marked {
		t.Error("marked twice")
	}
	if wait.ErrorInterrupted(cause) != marked {
		t.Error("two marks of one cause differ")
	}
	//lint:ignore SA1032 both orders are tried
	if errors.Is(marked, wait.ErrWaitTimeout) || errors.Is(wait.ErrWaitTimeout, marked) {
		t.Error("one interruption is taken for another")
	}
	if !errors.Is(marked, wait.ErrorInterrupted(nil)) {
		t.Error("the mark without a cause does not stand for it")
	}
	for _, err := range []error{wait.ErrWaitTimeout, wait.ErrorInterrupted(nil)} {
		if got, want := err.Error(), "timed out waiting for the condition"; got != want {
			t.Errorf("text %q, want %q", got, want)
		}
	}
}

// named is an error of a type of its own.
type named struct{ text string }

func (e named) Error() string { return e.text }
