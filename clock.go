package workqueue

import (
	"time"

	"k8s.io/utils/clock"
)

// steadyClock is a [clock.RealClock] of which Now costs half as much: it reads the monotonic clock and not the
// wall clock, whose jumps it does not follow. What matters here are differences.
type steadyClock struct {
	clock.RealClock
	epoch time.Time
}

func (c steadyClock) Now() time.Time { return c.epoch.Add(time.Since(c.epoch)) }

// steady returns c or, if that is the real clock, a steady one.
func steady(c clock.Clock) clock.Clock {
	if r, ok := c.(clock.RealClock); ok {
		return steadyClock{RealClock: r, epoch: r.Now()}
	}
	return c
}
