package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/wait"
)

// When each loop calls its condition is compared with apimachinery in peers/compat.

var errBroken = errors.New("broken")

// waits are all the functions that call a condition, on pauses of 1 s.
func waits() map[string]func(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	type condition = wait.ConditionWithContextFunc
	b := wait.Backoff{Duration: time.Second, Steps: 5}
	poll := func(interval time.Duration, immediate bool) func(context.Context, condition) error {
		return func(ctx context.Context, c condition) error {
			return wait.PollUntilContextCancel(ctx, interval, immediate, c)
		}
	}
	until := func(sliding bool) func(context.Context, condition) error {
		return func(ctx context.Context, c condition) error { return b.DelayFunc().Until(ctx, false, sliding, c) }
	}
	return map[string]func(ctx context.Context, c condition) error{
		"PollUntilContextCancel":             poll(time.Second, false),
		"PollUntilContextCancel immediate":   poll(time.Second, true),
		"PollUntilContextCancel no interval": poll(0, false),
		"PollUntilContextTimeout": func(ctx context.Context, c condition) error {
			return wait.PollUntilContextTimeout(ctx, time.Second, time.Hour, false, c)
		},
		"DelayFunc.Until":         until(false),
		"DelayFunc.Until sliding": until(true),
		"ExponentialBackoffWithContext": func(ctx context.Context, c condition) error {
			return wait.ExponentialBackoffWithContext(ctx, b, c)
		},
		"ExponentialBackoff": func(ctx context.Context, c condition) error {
			return wait.ExponentialBackoff(b, func() (bool, error) { return c(ctx) })
		},
	}
}

// TestContextEndsTheWait: before it begins, in a call and in a pause.
func TestContextEndsTheWait(t *testing.T) {
	for name, run := range waits() {
		if name == "ExponentialBackoff" {
			continue // has no context
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				calls, want := 0, 0
				if name == "PollUntilContextCancel immediate" {
					want = 1
				}
				for range 20 { // select picks at random
					calls = 0
					err := run(ctx, func(context.Context) (bool, error) { calls++; return false, nil })
					if err != context.Canceled || calls != want {
						t.Errorf("ended before: returns %v after %d calls, want %d", err, calls, want)
					}
				}

				for range 20 {
					ctx, cancel := context.WithCancel(t.Context())
					calls := 0
					err := run(ctx, func(context.Context) (bool, error) {
						if calls++; calls == 2 {
							time.Sleep(2 * time.Second) // so that the tick is there as well
							cancel()
						}
						return false, nil
					})
					if err != context.Canceled || calls != 2 {
						t.Errorf("ended in the second call: returns %v after %d", err, calls)
					}
				}

				if name == "PollUntilContextCancel no interval" {
					return // has no pauses
				}
				ctx, cancel = context.WithCancel(t.Context())
				defer time.AfterFunc(1500*time.Millisecond, cancel).Stop()
				begin := time.Now()
				err := run(ctx, func(context.Context) (bool, error) { return false, nil })
				if d := time.Since(begin); err != context.Canceled || d != 1500*time.Millisecond {
					t.Errorf("ended in a pause: returns %v after %v, want 1.5s", err, d)
				}
			})
		})
	}
}

// TestValueOnTheChannelIsNoSuccess: the context knows of no end afterwards.
func TestValueOnTheChannelIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		go func() { stop <- struct{}{} }()
		err := wait.PollUntilContextCancel(wait.ContextForChannel(stop), time.Second, false,
			func(context.Context) (bool, error) {
				return false, nil
			})
		if err != context.Canceled {
			t.Errorf("returns %v", err)
		}
	})
}

// The condition gets the loop's context, which ends with the loop if the loop made it.
func TestConditionIsGivenTheContext(t *testing.T) {
	type key struct{}
	for name, run := range waits() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var given context.Context
				err := run(context.WithValue(t.Context(), key{}, "value"), func(got context.Context) (bool, error) {
					given = got
					if got.Value(key{}) != "value" || got.Err() != nil {
						t.Errorf("given another context, which has ended with %v", got.Err())
					}
					return true, nil
				})
				_, limited := given.Deadline()
				if own := name == "PollUntilContextTimeout"; limited != own || err != nil || (given.Err() != nil) != own {
					t.Errorf("given a deadline: %t, ended with %v, returns %v", limited, given.Err(), err)
				}
			})
		})
	}
}

func TestPollTimeoutOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		err := wait.PollUntilContextTimeout(ctx, 2*time.Second, time.Hour, true,
			func(context.Context) (bool, error) { return false, nil })
		if d := time.Since(begin); err != context.DeadlineExceeded || d != 3*time.Second {
			t.Errorf("returns %v after %v, want DeadlineExceeded after 3s", err, d)
		}
	})
}
