package wait

import (
	"context"
	"time"
)

// ConditionFunc reports whether what is waited for has come true. An error ends the
// wait.
type ConditionFunc func() (done bool, err error)

// WithContext returns cf as a ConditionWithContextFunc, which ignores its context.
func (cf ConditionFunc) WithContext() ConditionWithContextFunc {
	return func(context.Context) (bool, error) { return cf() }
}

// ConditionWithContextFunc is a ConditionFunc that is given the context of the wait,
// and should return early when that ends.
type ConditionWithContextFunc func(context.Context) (done bool, err error)

// PollUntilContextCancel calls condition every interval until it returns true or an
// error, or ctx ends, and returns nil, the condition's error or ctx's error
// accordingly. A condition that returns true and an error has failed.
//
// With immediate, the first call comes at once, even if ctx has already ended;
// without, after the first interval. Once ctx has ended, the condition is not called
// again; a call that is under way is waited for. Calls are made on a fixed grid: if
// one lasts beyond the next point of it, the next follows at once, and further points
// that were missed are left out. If interval is not positive there is no pause.
//
// It blocks, and waits in real time.
func PollUntilContextCancel(ctx context.Context, interval time.Duration, immediate bool, condition ConditionWithContextFunc) error {
	return loop(ctx, Backoff{Duration: interval}.Timer(), immediate, false, condition)
}

// PollUntilContextTimeout is PollUntilContextCancel with a context that ends after
// timeout, or when ctx does. It is that context which condition is given. When time
// runs out the error is context.DeadlineExceeded.
func PollUntilContextTimeout(ctx context.Context, interval, timeout time.Duration, immediate bool, condition ConditionWithContextFunc) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return PollUntilContextCancel(ctx, interval, immediate, condition)
}

// ExponentialBackoff is ExponentialBackoffWithContext for a wait that nothing cuts
// short.
func ExponentialBackoff(backoff Backoff, condition ConditionFunc) error {
	return ExponentialBackoffWithContext(context.Background(), backoff, condition.WithContext())
}

// ExponentialBackoffWithContext calls condition up to backoff.Steps times, the first
// time at once, with pauses of the lengths that backoff.Step returns, until it returns
// true or an error, or ctx ends. It returns nil, the condition's error or ctx's error
// accordingly, and [ErrWaitTimeout] when the tries are used up; [Interrupted] is true
// of the last two.
//
// The tries are also used up when the delay would grow above backoff.Cap, after the
// pause in which that happens. So no pause ever lasts Cap, and that last one is waited
// for although no try follows (google/go-containerregistry#1823); kept as it is
// because callers have chosen their Steps by it. Use DelayFunc().Until to go on at
// Cap.
//
// If Steps is not positive, condition is not called. It is not called either once ctx
// has ended. The function blocks, and waits in real time. backoff is a copy, so the
// caller's remains as it is.
func ExponentialBackoffWithContext(ctx context.Context, backoff Backoff, condition ConditionWithContextFunc) error {
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
