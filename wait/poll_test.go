package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/wait"
)

var errBroken = errors.New("broken")

// asks returns a condition on the time line that takes the given numbers of seconds,
// as job does, and is never true.
func (l *timeline) asks(seconds ...float64) wait.ConditionWithContextFunc {
	return func(context.Context) (bool, error) {
		l.job(seconds[0])()
		if len(seconds) > 1 {
			seconds = seconds[1:]
		}
		return false, nil
	}
}

// end checks the time line up to the end of a wait, and the error that it returned.
func (l *timeline) end(t *testing.T, want string, err, wantErr error) {
	t.Helper()
	l.add("end")
	l.check(t, want)
	if err != wantErr {
		t.Errorf("returns %v, want %v", err, wantErr)
	}
}

// TestPollTimeline polls every 2 s, for 9 s.
func TestPollTimeline(t *testing.T) {
	tests := []struct {
		name      string
		immediate bool
		seconds   []float64
		want      string
	}{
		{"quick", false, []float64{0}, "2:f 4:f 6:f 8:f 9:end"},
		{"quick, immediate", true, []float64{0}, "0:f 2:f 4:f 6:f 8:f 9:end"},
		{"slow", false, []float64{1}, "2:f 4:f 6:f 8:f 9:end"},
		// One tick is kept for a slow condition; those after it are on the grid again.
		{"too slow once", false, []float64{2.5, 0}, "2:f 4.5:f 6:f 8:f 9:end"},
		{"too slow once, immediate", true, []float64{5, 0}, "0:f 5:f 6:f 8:f 9:end"},
		{"too slow always", false, []float64{3}, "2:f 5:f 8:f 11:end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				line := newTimeline()
				err := wait.PollUntilContextTimeout(t.Context(), 2*time.Second, 9*time.Second, tt.immediate, line.asks(tt.seconds...))
				line.end(t, tt.want, err, context.DeadlineExceeded)
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(9*time.Second, cancel).Stop()
				line := newTimeline()
				err := wait.PollUntilContextCancel(ctx, 2*time.Second, tt.immediate, line.asks(tt.seconds...))
				line.end(t, tt.want, err, context.Canceled)
			})
		})
	}
}

// TestDelayFuncUntilTimeline runs with pauses of 1, 2, 3… seconds, for 12.5 s.
func TestDelayFuncUntilTimeline(t *testing.T) {
	tests := []struct {
		name               string
		immediate, sliding bool
		seconds            []float64
		want               string
	}{
		{"quick", false, false, []float64{0}, "1:f 3:f 6:f 10:f 12.5:end"},
		{"quick, sliding", false, true, []float64{0}, "1:f 3:f 6:f 10:f 12.5:end"},
		{"quick, immediate", true, false, []float64{0}, "0:f 1:f 3:f 6:f 10:f 12.5:end"},
		{"quick, immediate, sliding", true, true, []float64{0}, "0:f 1:f 3:f 6:f 10:f 12.5:end"},
		{"slow", false, false, []float64{1.5}, "1:f 3:f 6:f 10:f 12.5:end"},
		{"slow, sliding", false, true, []float64{1.5}, "1:f 4.5:f 9:f 12.5:end"},
		{"slow, immediate", true, false, []float64{1.5}, "0:f 1.5:f 3.5:f 6.5:f 10.5:f 12.5:end"},
		{"slow, immediate, sliding", true, true, []float64{1.5}, "0:f 2.5:f 6:f 10.5:f 12.5:end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 12500*time.Millisecond)
				defer cancel()
				line := newTimeline()
				n := time.Duration(0)
				growing := wait.DelayFunc(func() time.Duration { n++; return n * time.Second })
				err := growing.Until(ctx, tt.immediate, tt.sliding, line.asks(tt.seconds...))
				line.end(t, tt.want, err, context.DeadlineExceeded)
			})
		})
	}
}

// TestUntilGoesOnAtCap: the endless backoff that ExponentialBackoff is not
// (kubernetes/kubernetes#131122).
func TestUntilGoesOnAtCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 21*time.Second)
		defer cancel()
		line := newTimeline()
		b := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 100, Cap: 5 * time.Second}
		b.DelayFunc().Until(ctx, true, true, line.asks(0))
		line.check(t, "0:f 1:f 3:f 7:f 12:f 17:f")
	})
}

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

func TestConditionEndsTheWait(t *testing.T) {
	tests := []struct {
		name string
		done bool
		err  error
	}{
		{"true", true, nil},
		{"error", false, errBroken},
		{"true and an error", true, errBroken},
	}
	for name, run := range waits() {
		for _, tt := range tests {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					calls := 0
					err := run(t.Context(), func(context.Context) (bool, error) {
						if calls++; calls < 3 {
							return false, nil
						}
						return tt.done, tt.err
					})
					if err != tt.err || calls != 3 {
						t.Errorf("returns %v after %d calls, want %v after 3", err, calls, tt.err)
					}
				})
			})
		}
		t.Run(name+"/panic", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if r := recover(); r != errBroken {
						t.Errorf("recovered %v", r)
					}
				}()
				err := run(t.Context(), func(context.Context) (bool, error) { panic(errBroken) })
				t.Errorf("returns %v", err)
			})
		})
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
		err := wait.PollUntilContextCancel(wait.ContextForChannel(stop), time.Second, false, func(context.Context) (bool, error) {
			return false, nil
		})
		if err != context.Canceled {
			t.Errorf("returns %v", err)
		}
	})
}

func TestConditionIsGivenTheContext(t *testing.T) {
	type key struct{}
	for name, run := range waits() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := context.WithValue(t.Context(), key{}, "value")
				run(ctx, func(got context.Context) (bool, error) {
					if got.Value(key{}) != "value" {
						t.Error("given another context")
					}
					if _, limited := got.Deadline(); limited != (name == "PollUntilContextTimeout") {
						t.Errorf("given a deadline: %t", limited)
					}
					return true, nil
				})
			})
		})
	}
}

// TestPollTimeoutReleasesItsContext: what the condition has started with it ends.
func TestPollTimeoutReleasesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given context.Context
		err := wait.PollUntilContextTimeout(t.Context(), time.Second, time.Hour, false, func(ctx context.Context) (bool, error) {
			given = ctx
			return true, nil
		})
		if err != nil || given.Err() != context.Canceled {
			t.Errorf("returns %v, its context %v", err, given.Err())
		}
	})
}

func TestPollTimeoutOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		line := newTimeline()
		err := wait.PollUntilContextTimeout(ctx, 2*time.Second, time.Hour, true, line.asks(0))
		line.end(t, "0:f 2:f 3:end", err, context.DeadlineExceeded)
	})
}

func TestExponentialBackoff(t *testing.T) {
	tests := []struct {
		name string
		b    wait.Backoff
		want string
	}{
		{"no steps", wait.Backoff{Duration: time.Second, Factor: 2}, "0:end"},
		{"negative steps", wait.Backoff{Duration: time.Second, Steps: -1}, "0:end"},
		{"one step", wait.Backoff{Duration: time.Second, Factor: 2, Steps: 1}, "0:f 0:end"},
		{"no pause after the last", wait.Backoff{Duration: time.Second, Factor: 2, Steps: 4}, "0:f 1:f 3:f 7:f 7:end"},
		{"constant", wait.Backoff{Duration: time.Second, Steps: 3}, "0:f 1:f 2:f 2:end"},
		{"no pauses", wait.Backoff{Steps: 3}, "0:f 0:f 0:f 0:end"},
		{"negative duration", wait.Backoff{Duration: -1, Steps: 3}, "0:f 0:f 0:f 0:end"},
		{"cap uses up the tries", wait.Backoff{Duration: time.Second, Factor: 2, Steps: 9, Cap: 5 * time.Second}, "0:f 1:f 3:f 7:end"},
		{"at once", wait.Backoff{Duration: time.Second, Factor: 2, Steps: 9, Cap: 1}, "0:f 1:end"},
		{"cap out of reach", wait.Backoff{Duration: time.Second, Factor: 2, Steps: 3, Cap: 4 * time.Second}, "0:f 1:f 3:f 3:end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				line := newTimeline()
				err := wait.ExponentialBackoffWithContext(t.Context(), tt.b, line.asks(0))
				line.end(t, tt.want, err, wait.ErrWaitTimeout)
			})
			synctest.Test(t, func(t *testing.T) {
				line := newTimeline()
				asks := line.asks(0)
				err := wait.ExponentialBackoff(tt.b, func() (bool, error) { return asks(t.Context()) })
				line.end(t, tt.want, err, wait.ErrWaitTimeout)
			})
		})
	}
}

// TestExponentialBackoffTriesBeforeContext: without tries there is nothing to cancel.
func TestExponentialBackoffTriesBeforeContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(context.Context) (bool, error) { t.Error("called"); return true, nil }
	if err := wait.ExponentialBackoffWithContext(ctx, wait.Backoff{}, never); err != wait.ErrWaitTimeout {
		t.Errorf("without steps: %v", err)
	}
	if err := wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Steps: 1}, never); err != context.Canceled {
		t.Errorf("with steps: %v", err)
	}
}
