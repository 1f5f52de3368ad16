package wait

import (
	"context"
	"time"
)

// ConditionFunc reports whether the condition is true. An error ends the wait.
type ConditionFunc func() (done bool, err error)

// WithContext returns cf as a ConditionWithContextFunc, which ignores its context.
func (cf ConditionFunc) WithContext() ConditionWithContextFunc {
	return func(context.Context) (bool, error) { return cf() }
}

// ConditionWithContextFunc is a ConditionFunc that is given the context of the wait, and should return early
// when that ends.
type ConditionWithContextFunc func(context.Context) (done bool, err error)

// PollUntilContextCancel calls condition every interval until it returns true or an error, or ctx ends, and
// returns nil, the condition's error or ctx's error accordingly. A condition that returns true and an error
// has failed.
//
// With immediate, the first call comes at once, even if ctx has already ended; without, after the first
// interval. When ctx ends, PollUntilContextCancel waits for a call that is being made, and makes no other.
// Calls keep to a fixed grid: if one lasts beyond the next point of the grid, the next call follows at once,
// and other points that it has missed are left out. If interval is not positive there is no pause.
//
// It blocks, and waits in real time. As in apimachinery, the error of a context that has ended is its Err,
// not its Cause.
func PollUntilContextCancel(ctx context.Context, interval time.Duration, immediate bool,
	condition ConditionWithContextFunc) error {
	return loop(ctx, Backoff{Duration: interval}.Timer(), immediate, false, condition)
}

// PollUntilContextTimeout is PollUntilContextCancel with a context that ends after timeout, or when ctx does.
// The condition gets that context. When the time is over the error is context.DeadlineExceeded.
func PollUntilContextTimeout(ctx context.Context, interval, timeout time.Duration, immediate bool,
	condition ConditionWithContextFunc) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return PollUntilContextCancel(ctx, interval, immediate, condition)
}
