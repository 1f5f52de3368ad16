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

// ExponentialBackoff is ExponentialBackoffWithContext with a context that never ends.
func ExponentialBackoff(backoff Backoff, condition ConditionFunc) error {
	return ExponentialBackoffWithContext(context.Background(), backoff, condition.WithContext())
}

// ExponentialBackoffWithContext calls condition up to backoff.Steps times, the first time at once, with
// pauses of the lengths that backoff.Step returns, until it returns true or an error, or ctx ends. It returns
// nil, the condition's error or ctx's error accordingly, and [ErrWaitTimeout] when the tries are used up;
// [Interrupted] recognizes the last two.
//
// The tries are also used up when the delay would grow above backoff.Cap, after the pause in which that
// happens. So no pause ever lasts Cap, and the function waits for the last pause although no try follows it
// (google/go-containerregistry#1823): callers have chosen their Steps by that. Use DelayFunc().Until to go on
// at Cap.
//
// It does not call condition if Steps is not positive, or once ctx has ended. It blocks, and waits in real
// time. The caller's backoff remains as it is.
func ExponentialBackoffWithContext(ctx context.Context, backoff Backoff,
	condition ConditionWithContextFunc) error {
	if backoff.Steps < 1 {
		return ErrWaitTimeout
	}
	if err := ended(ctx); err != nil {
		return err
	}
	pause := DelayFunc(backoff.Step)
	return loop(ctx, pause.Timer(nil), true, true, func(ctx context.Context) (bool, error) {
		if backoff.Steps < 1 { // the pause before has met the cap
			return false, ErrWaitTimeout
		}
		if done, err := condition(ctx); done || err != nil {
			return done, err
		}
		if backoff.Steps == 1 { // no pause after the last try
			return false, ErrWaitTimeout
		}
		return false, nil
	})
}
