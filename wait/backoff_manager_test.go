package wait_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue/wait"
)

// timerClock is a fake clock that notes for how long its timers were made.
type timerClock struct {
	*testingclock.FakeClock
	made []time.Duration
}

func newTimerClock() *timerClock {
	return &timerClock{FakeClock: testingclock.NewFakeClock(time.Unix(0, 0))}
}

func (c *timerClock) NewTimer(d time.Duration) clock.Timer {
	c.made = append(c.made, d)
	return c.FakeClock.NewTimer(d)
}

// pause asks m for a timer and returns its length.
func (c *timerClock) pause(m wait.BackoffManager) time.Duration {
	m.Backoff().Stop()
	return c.made[len(c.made)-1]
}

func TestExponentialManagerGrows(t *testing.T) {
	tests := []struct {
		name           string
		first, maximum time.Duration
		reset          time.Duration
		factor, jitter float64
		want           []time.Duration
	}{
		{"to the maximum", 1, 10, time.Minute, 2, 0, []time.Duration{1, 2, 4, 8, 10, 10}},
		{"not with a bad factor", 1, 10, time.Minute, -2, 0, []time.Duration{1, 1, 1}},
		{"to the end of time", 1 << 61, 0, time.Minute, 2, 0, []time.Duration{1 << 61, 1 << 62, most, most}},
		{"at once", 1, 0, time.Minute, math.Inf(1), math.Inf(-1), []time.Duration{1, most, most}},
		{"negative first", -1, 10, time.Minute, 2, 0, []time.Duration{0, 0}},
		{"not without a reset duration", 1, 10, 0, 2, 0, []time.Duration{1, 1, 1}},
		{"not with a negative one", 1, 10, -1, 2, 0, []time.Duration{1, 1, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newTimerClock()
			m := wait.NewExponentialBackoffManager(tt.first, tt.maximum, tt.reset, tt.factor, tt.jitter, c)
			equalDelays(t, "pauses", take(len(tt.want), func() time.Duration { return c.pause(m) }), tt.want)
		})
	}
}

// TestExponentialManagerStartsAgain: after idle time, which does not include pauses.
func TestExponentialManagerStartsAgain(t *testing.T) {
	c := newTimerClock()
	m := wait.NewExponentialBackoffManager(2*time.Second, time.Hour, 10*time.Second, 3, 0, c)
	script := []struct {
		idle time.Duration // since the end of the pause before
		want time.Duration
	}{
		{time.Hour, 2 * time.Second}, // the time before the first use does not matter
		{0, 6 * time.Second},
		{0, 18 * time.Second}, // longer than the reset duration
		{0, 54 * time.Second}, // and still growing
		{10 * time.Second, 162 * time.Second},
		{10*time.Second + 1, 2 * time.Second},
		{10 * time.Second, 6 * time.Second},
		{-3 * time.Second, 18 * time.Second}, // asked before the end of the pause
		{time.Hour, 2 * time.Second},
	}
	for i, s := range script {
		c.Step(s.idle)
		got := c.pause(m)
		if got != s.want {
			t.Fatalf("pause %d: %v, want %v", i, got, s.want)
		}
		c.Step(got)
	}
}

// TestExponentialManagerCountsFromTheLatestEnd: of the pauses that several users of
// one manager are in, the longest decides, not the one handed out last.
func TestExponentialManagerCountsFromTheLatestEnd(t *testing.T) {
	c := newTimerClock()
	m := wait.NewExponentialBackoffManager(64*time.Second, 0, 10*time.Second, 0.25, 0, c)
	equalDelays(t, "pauses", take(2, func() time.Duration { return c.pause(m) }),
		[]time.Duration{64 * time.Second, 16 * time.Second})
	c.Step(74 * time.Second) // 58 s after the end of the second, 10 s after that of the first
	if got := c.pause(m); got != 4*time.Second {
		t.Errorf("next pause %v, want 4s", got)
	}
}

func TestJitteredManager(t *testing.T) {
	for _, jitter := range []float64{0, -1, math.NaN()} {
		c := newTimerClock()
		m := wait.NewJitteredBackoffManager(time.Second, jitter, c)
		equalDelays(t, "pauses", take(2, func() time.Duration { return c.pause(m) }),
			[]time.Duration{time.Second, time.Second})
	}
}

// TestSharedManager lets loops share a manager: each has a timer of its own, so none
// takes another's tick, and together they go through one sequence.
func TestSharedManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := wait.NewExponentialBackoffManager(time.Second, time.Hour, time.Hour, 2, 0, nil)
		begin := time.Now()
		ends := make(chan time.Duration, 4)
		var group wait.Group
		for range cap(ends) {
			group.Start(func() {
				<-m.Backoff().C()
				ends <- time.Since(begin) / time.Second
			})
		}
		group.Wait()
		close(ends)
		var got []time.Duration
		for end := range ends {
			got = append(got, end)
		}
		if want := []time.Duration{1, 2, 4, 8}; !slices.Equal(got, want) {
			t.Errorf("pauses end at %v, want %v", got, want)
		}
	})
}

// TestBackoffUntilStopsItsTimer, however it ends.
func TestBackoffUntilStopsItsTimer(t *testing.T) {
	for _, sliding := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := testingclock.NewFakeClock(time.Now())
			m := wait.NewJitteredBackoffManager(time.Hour, 0, c)
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			var group wait.Group
			group.StartWithContext(ctx, func(ctx context.Context) {
				wait.BackoffUntilWithContext(ctx, func(context.Context) { calls++ }, m, sliding)
			})
			for want := 1; want <= 2; want++ {
				synctest.Wait()
				if calls != want || !c.HasWaiters() {
					t.Errorf("sliding %t: %d calls, a timer %t; want %d, true", sliding, calls, c.HasWaiters(), want)
				}
				c.Step(time.Hour)
			}
			cancel()
			group.Wait()
			if c.HasWaiters() {
				t.Errorf("sliding %t: a timer is left", sliding)
			}
		})
	}
	c := testingclock.NewFakeClock(time.Unix(0, 0))
	defer func() {
		if r := recover(); r != "in f" || c.HasWaiters() {
			t.Errorf("recovered %v, want the panic of f; a timer is left: %t", r, c.HasWaiters())
		}
	}()
	wait.BackoffUntil(func() {
		if !c.HasWaiters() {
			t.Error("no pause has begun before f is called")
		}
		panic("in f")
	}, wait.NewJitteredBackoffManager(time.Hour, 0, c), false, wait.NeverStop)
}

// oneTimer is a manager as apimachinery's are: its callers all get the same timer.
type oneTimer struct {
	clock clock.Clock
	timer clock.Timer
}

func (m *oneTimer) Backoff() clock.Timer {
	if m.timer == nil {
		m.timer = m.clock.NewTimer(time.Hour)
	} else {
		m.timer.Reset(time.Hour)
	}
	return m.timer
}

// TestBackoffUntilLeavesNoTick: the timer of such a manager fires and the loop is
// stopped at the same moment. Whichever the loop notices, the next loop must have its
// pause.
func TestBackoffUntilLeavesNoTick(t *testing.T) {
	for range 30 { // select picks at random
		synctest.Test(t, func(t *testing.T) {
			c := testingclock.NewFakeClock(time.Now())
			m := &oneTimer{clock: c}
			ctx, cancel := context.WithCancel(t.Context())
			wait.BackoffUntilWithContext(ctx, func(context.Context) {
				c.Step(time.Hour)
				cancel()
			}, m, false)

			ctx, cancel = context.WithCancel(t.Context())
			calls := 0
			var group wait.Group
			group.Start(func() {
				wait.BackoffUntilWithContext(ctx, func(context.Context) { calls++ }, m, false)
			})
			synctest.Wait()
			if calls != 1 {
				t.Errorf("%d calls before the first pause is over, want 1", calls)
			}
			cancel()
			group.Wait()
		})
	}
}
