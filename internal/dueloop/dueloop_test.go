package dueloop_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"k8s.io/utils/clock"
)

// The goroutine runs while a key waits, and sleeps until the first is due, but no longer than
// dueloop.MaxSleep.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := testkit.Goroutines()
		c := testkit.NewFakeClock()
		next, looks := dueloop.Never, 0 // The bubble's Wait separates their uses.
		var l *dueloop.Loop
		l = dueloop.New(c, func() (until time.Duration, ok bool) {
			looks++
			now := l.Now()
			if next <= now {
				next = dueloop.Never
			}
			return l.PlanLocked(now, next)
		})
		tend := func(at time.Duration, wantWake bool, wantLooks int) {
			t.Helper()
			next = at
			wake := l.TendLocked(next)
			if wake {
				l.Wake()
				l.Wake()
			}
			synctest.Wait()
			if wake != wantWake || looks != wantLooks {
				t.Errorf("a key is due at %v: wake = %v, want %v; the loop has looked %d times, want %d", at, wake,
					wantWake, looks, wantLooks)
			}
		}
		tend(dueloop.Never, false, 0)
		tend(time.Hour, false, 1)
		tend(time.Minute, false, 1)  // It will look before anyway.
		tend(time.Second, true, 2+1) // The second Wake was after it had received the first.
		c.Step(time.Second)
		synctest.Wait()
		if looks != 4 || l.TendLocked(dueloop.Never) {
			t.Errorf("after a second the loop has looked %d times, runs: %v", looks, l.TendLocked(dueloop.Never))
		}
		l.Wait()
		base.WantMore(t, "while no key waits", 0)

		tend(time.Hour, false, 5)
		c.Step(dueloop.MaxSleep)
		synctest.Wait()
		if looks != 6 {
			t.Errorf("after %v the loop has looked %d times", dueloop.MaxSleep, looks)
		}
		tend(dueloop.Never, true, 7) // No key waits any more, so it ends.
		l.Wait()
		if c.HasWaiters() {
			t.Error("its timer runs on")
		}
	})
}

func TestTimes(t *testing.T) {
	const horizon = 1<<62 - dueloop.MaxSleep // 146 years
	c := testkit.NewFakeClock()
	l := dueloop.New(c, nil)
	l.Now()
	for _, jump := range []time.Duration{time.Second, -time.Hour, math.MaxInt64, math.MinInt64} {
		c.SetTime(testkit.Epoch.Add(jump))
		want := min(max(jump, -horizon), horizon)
		if now := l.Now(); now != want || !l.Time(now).Equal(testkit.Epoch.Add(want)) {
			t.Errorf("after %v it is %v, %v", jump, now, l.Time(now))
		}
	}
}

// A timer does not fire for what it was started for before, and not at all for what is past.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testkit.NewFakeClock()
		l := dueloop.New(c, nil)
		l.Now()
		timer := l.NewTimer()
		c.Step(dueloop.MaxSleep) // It has fired, unnoticed.
		sleep := testkit.Start(func() bool { timer.Sleep(time.Minute); return true })
		sleep.MustBlock(t, "Sleep")
		c.Step(time.Minute - dueloop.MaxSleep - 1)
		sleep.MustBlock(t, "Sleep")
		c.Step(1)
		sleep.MustReturn(t, "Sleep")
		timer.Sleep(time.Minute)
	})
}

// The clock is stepped between its reading and the start of the timer. A clock that always
// moves makes the timer late, and does not keep the loop from sleeping.
func TestTimerOnAClockThatMoves(t *testing.T) {
	for _, tt := range []struct {
		name         string
		moves        int
		reads, fires int
	}{
		{"not at all", 0, 2, 60},
		{"once", 1, 3, 60},
		{"always", 1000, 11, 60 + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testkit.NewFakeClock()
				moves, reads := 0, 0
				reading := &testkit.HookedClock{WithTicker: c, OnNow: func() { reads++ }}
				l := dueloop.New(resetHook{reading, func() {
					if moves++; moves <= tt.moves {
						c.Step(time.Second)
					}
				}}, nil)
				l.Now()
				timer := l.NewTimer()
				reads = 0
				sleep := testkit.Start(func() bool { timer.Sleep(time.Minute); return true })
				synctest.Wait()
				if reads != tt.reads {
					t.Errorf("the time was read %d times, want %d", reads, tt.reads)
				}
				c.SetTime(testkit.Epoch.Add(time.Duration(tt.fires)*time.Second - 1))
				sleep.MustBlock(t, "Sleep")
				c.Step(1)
				sleep.MustReturn(t, "Sleep")
			})
		})
	}
}

func TestAddSaturated(t *testing.T) {
	const least, most = math.MinInt64, math.MaxInt64
	for _, c := range []struct{ a, b, want time.Duration }{
		{0, 0, 0}, {1, 2, 3}, {-1, -2, -3}, {5, -7, -2}, {-5, 7, 2},
		{most, 0, most}, {0, most, most}, {most, 1, most}, {1, most, most}, {most, most, most},
		{most, -1, most - 1},
		{1 << 62, 1 << 62, most}, {1 << 62, 1<<62 - 1, most},
		{least, 0, least}, {0, least, least}, {least, -1, least}, {-1, least, least}, {least, least, least},
		{least, 1, least + 1}, {-1 << 62, -1 << 62, least}, {least, most, -1}, {most, least, -1},
	} {
		if got := dueloop.AddSaturated(c.a, c.b); got != c.want {
			t.Errorf("AddSaturated(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// resetHook is a clock that calls onReset before each Reset of a timer.
type resetHook struct {
	clock.Clock
	onReset func()
}

func (c resetHook) NewTimer(d time.Duration) clock.Timer {
	return hookedTimer{c.Clock.NewTimer(d), c.onReset}
}

type hookedTimer struct {
	clock.Timer
	onReset func()
}

func (h hookedTimer) Reset(d time.Duration) bool {
	h.onReset()
	return h.Timer.Reset(d)
}
