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

func (c *HookedClock) Now() time.Time {
	if c.OnNow != nil {
		c.OnNow()
	}
	return c.WithTicker.Now()
}

func (c *HookedClock) Since(t time.Time) time.Duration {
	if c.OnNow != nil {
		c.OnNow()
	}
	return c.WithTicker.Since(t)
}

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

// PanickingClock is the clock of a queue that must not use it: each method panics, because there is no clock inside.
type PanickingClock struct{ clock.WithTicker }
