package wait_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/wait"
)

// timeline is what happens in a bubble, each event with its second.
type timeline struct {
	begin  time.Time
	events []string
}

func newTimeline() *timeline { return &timeline{begin: time.Now()} }

func (l *timeline) add(what string) {
	l.events = append(l.events, fmt.Sprintf("%g:%s", time.Since(l.begin).Seconds(), what))
}

func (l *timeline) check(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(l.events, " "); got != want {
		t.Errorf("timeline\n\t%s\nwant\n\t%s", got, want)
	}
}

// job returns an f that takes the given numbers of seconds, one a call and the last
// for all that follow.
func (l *timeline) job(seconds ...float64) func() {
	return func() {
		l.add("f")
		now := seconds[0]
		if len(seconds) > 1 {
			seconds = seconds[1:]
		}
		if now > 0 {
			time.Sleep(time.Duration(now * float64(time.Second)))
		}
	}
}

const period = 2 * time.Second

// untils are the functions that call f every period until ctx ends.
func untils(sliding bool) map[string]func(ctx context.Context, f func()) {
	withContext := func(f func()) func(context.Context) { return func(context.Context) { f() } }
	manager := func() wait.BackoffManager { return wait.NewJitteredBackoffManager(period, 0, nil) }
	all := map[string]func(ctx context.Context, f func()){
		"JitterUntil": func(ctx context.Context, f func()) { wait.JitterUntil(f, period, -1, sliding, ctx.Done()) },
		"JitterUntilWithContext": func(ctx context.Context, f func()) {
			wait.JitterUntilWithContext(ctx, withContext(f), period, 0, sliding)
		},
		"BackoffUntil": func(ctx context.Context, f func()) {
			wait.BackoffUntil(f, manager(), sliding, ctx.Done())
		},
		"BackoffUntilWithContext": func(ctx context.Context, f func()) {
			wait.BackoffUntilWithContext(ctx, withContext(f), manager(), sliding)
		},
	}
	if sliding {
		all["Until"] = func(ctx context.Context, f func()) { wait.Until(f, period, ctx.Done()) }
		all["UntilWithContext"] = func(ctx context.Context, f func()) {
			wait.UntilWithContext(ctx, withContext(f), period)
		}
	} else {
		all["NonSlidingUntil"] = func(ctx context.Context, f func()) { wait.NonSlidingUntil(f, period, ctx.Done()) }
		all["NonSlidingUntilWithContext"] = func(ctx context.Context, f func()) {
			wait.NonSlidingUntilWithContext(ctx, withContext(f), period)
		}
	}
	return all
}

// eachUntil runs test for each of them, in a bubble.
func eachUntil(t *testing.T, test func(t *testing.T, sliding bool,
	until func(ctx context.Context, f func()))) {
	for _, sliding := range []bool{true, false} {
		for name, until := range untils(sliding) {
			t.Run(fmt.Sprintf("%s,sliding=%t", name, sliding), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test(t, sliding, until) })
			})
		}
	}
}

// TestUntil runs every function for 10.5 s, on the same jobs.
func TestUntil(t *testing.T) {
	tests := []struct {
		name           string
		job            []float64
		sliding, fixed string
	}{
		{"takes no time", []float64{0}, "0:f 2:f 4:f 6:f 8:f 10:f 10.5:end", "0:f 2:f 4:f 6:f 8:f 10:f 10.5:end"},
		{"takes part of the period", []float64{1}, "0:f 3:f 6:f 9:f 10.5:end", "0:f 2:f 4:f 6:f 8:f 10:f 11:end"},
		// The pause counts from each call, so a slow one moves what follows.
		{"takes longer once", []float64{5, 0}, "0:f 7:f 9:f 10.5:end", "0:f 5:f 7:f 9:f 10.5:end"},
		{"takes longer always", []float64{4}, "0:f 6:f 10.5:end", "0:f 4:f 8:f 12:end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachUntil(t, func(t *testing.T, sliding bool, until func(context.Context, func())) {
				ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
				defer cancel()
				line := newTimeline()
				until(ctx, line.job(tt.job...))
				line.add("end")
				if sliding {
					line.check(t, tt.sliding)
				} else {
					line.check(t, tt.fixed)
				}
			})
		})
	}
}

// TestUntilDoesNotCallWhenStopped before it begins, nor once more after its end when the next pause is over
// at the same moment.
func TestUntilDoesNotCallWhenStopped(t *testing.T) {
	eachUntil(t, func(t *testing.T, sliding bool, until func(context.Context, func())) {
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		until(stopped, func() { t.Error("called") })
		for range 30 { // select picks at random
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			until(ctx, func() {
				calls++
				time.Sleep(period)
				cancel()
			})
			if calls != 1 {
				t.Errorf("%d calls, want 1", calls)
			}
		}
	})
}

// TestUntilStopsByAValue: a caller that cannot close the channel, because other loops have
// it, sends on it.
func TestUntilStopsByAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		var group wait.Group
		line := newTimeline()
		group.Start(func() { wait.Until(line.job(0), 2*time.Second, stop) })
		time.Sleep(3 * time.Second)
		stop <- struct{}{}
		group.Wait()
		line.add("end")
		line.check(t, "0:f 2:f 3:end")
	})
}

// TestUntilTakesOneValue: two values stop two loops.
func TestUntilTakesOneValue(t *testing.T) {
	stop := make(chan struct{}, 2)
	stop <- struct{}{}
	stop <- struct{}{}
	for left := 1; left >= 0; left-- {
		wait.Until(func() { t.Error("called after a stop") }, time.Second, stop)
		if len(stop) != left {
			t.Fatalf("%d values are left, want %d", len(stop), left)
		}
	}
}

// TestNeverStop: time passes in a bubble whose loop is never to be stopped. With a
// receive from NeverStop, which belongs to no bubble, this test would hang.
func TestNeverStop(t *testing.T) {
	for name, run := range map[string]func(f func()){
		"Until":     func(f func()) { wait.Until(f, time.Second, wait.NeverStop) },
		"Until nil": func(f func()) { wait.Until(f, time.Second, nil) },
		"Forever":   func(f func()) { wait.Forever(f, time.Second) },
		"BackoffUntil": func(f func()) {
			wait.BackoffUntil(f, wait.NewJitteredBackoffManager(time.Second, 0, nil), true, wait.NeverStop)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				line := newTimeline()
				var group wait.Group
				group.Start(func() {
					run(func() {
						if line.add("f"); len(line.events) == 4 {
							runtime.Goexit() // there is no other way out
						}
					})
				})
				group.Wait()
				line.check(t, "0:f 1:f 2:f 3:f")
			})
		})
	}
	select {
	case <-wait.NeverStop:
		t.Error("NeverStop is closed")
	default:
	}
}

// TestUntilDoesNotAllocate from one call to the next.
func TestUntilDoesNotAllocate(t *testing.T) {
	allocations := func(calls int) float64 {
		return testing.AllocsPerRun(10, func() {
			ctx, cancel := context.WithCancel(context.Background())
			left := calls
			wait.UntilWithContext(ctx, func(context.Context) {
				if left--; left == 0 {
					cancel()
				}
			}, 0)
		})
	}
	if few, many := allocations(2), allocations(200); many > few {
		t.Errorf("%v allocations for 2 calls, %v for 200", few, many)
	}
}

func TestContextForChannel(t *testing.T) {
	stop := make(chan struct{})
	ctx := wait.ContextForChannel(stop)
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		t.Errorf("before: %v", err)
	}
	if _, ok := ctx.Deadline(); ok || ctx.Value(0) != nil {
		t.Error("has a deadline or a value")
	}
	close(stop)
	for range 2 {
		<-ctx.Done()
		if err := ctx.Err(); err != context.Canceled {
			t.Errorf("after: %v", err)
		}
	}
	<-child.Done()
	if err := context.Cause(child); err != context.Canceled {
		t.Errorf("child: %v", err)
	}
	for _, never := range []<-chan struct{}{nil, wait.NeverStop} {
		if ctx := wait.ContextForChannel(never); ctx.Done() != nil || ctx.Err() != nil {
			t.Error("a context that never ends has something to wait for")
		}
	}
}
