package testkit

import (
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// Epoch is the time at which fake clocks start.
var Epoch = time.Date(2024, time.February, 29, 12, 0, 0, 0, time.UTC)

// NewFakeClock returns a clock that stands still at Epoch until it is stepped.
func NewFakeClock() *testingclock.FakeClock { return testingclock.NewFakeClock(Epoch) }

// HookedClock calls its hooks, unless they are nil, before each reading and each Reset of a timer.
type HookedClock struct {
	clock.WithTicker
	OnNow, OnReset func()
}

// Now calls OnNow.
func (c *HookedClock) Now() time.Time {
	if c.OnNow != nil {
		c.OnNow()
	}
	return c.WithTicker.Now()
}

// Since calls OnNow.
func (c *HookedClock) Since(t time.Time) time.Duration {
	if c.OnNow != nil {
		c.OnNow()
	}
	return c.WithTicker.Since(t)
}

// NewTimer returns a timer whose Reset calls OnReset.
func (c *HookedClock) NewTimer(d time.Duration) clock.Timer {
	return hookedTimer{c.WithTicker.NewTimer(d), c}
}

type hookedTimer struct {
	clock.Timer
	clock *HookedClock
}

func (h hookedTimer) Reset(d time.Duration) bool {
	if h.clock.OnReset != nil {
		h.clock.OnReset()
	}
	return h.Timer.Reset(d)
}

// PanickingClock is the clock of a queue that must not use it.
type PanickingClock struct{}

// Now panics.
func (PanickingClock) Now() time.Time { panic("clock: Now") }

// Since panics.
func (PanickingClock) Since(time.Time) time.Duration { panic("clock: Since") }

// After panics.
func (PanickingClock) After(time.Duration) <-chan time.Time { panic("clock: After") }

// NewTimer panics.
func (PanickingClock) NewTimer(time.Duration) clock.Timer { panic("clock: NewTimer") }

// NewTicker panics.
func (PanickingClock) NewTicker(time.Duration) clock.Ticker { panic("clock: NewTicker") }

// Sleep panics.
func (PanickingClock) Sleep(time.Duration) { panic("clock: Sleep") }

// Tick panics.
func (PanickingClock) Tick(time.Duration) <-chan time.Time { panic("clock: Tick") }

// AfterFunc panics.
func (PanickingClock) AfterFunc(time.Duration, func()) clock.Timer { panic("clock: AfterFunc") }
