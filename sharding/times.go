package sharding

import (
	"context"
	"math"
	"time"
)

// now is the time since the member's start by its own clock.
func (m *Member) now() time.Duration { return m.config.Clock.Since(m.start) }

// margin makes up for clocks of different speed. Keys have one holder as long as the slowest clock shows more
// than 5/6 of a lease while the fastest shows a whole one. chrony, while it corrects a clock, makes it 8.3 %
// wrong at most.
func (m *Member) margin() time.Duration { return m.config.Lease / 6 }

// retryDelay is the pause after a failed call, and callTimeout how long a call may take.
func (m *Member) retryDelay() time.Duration  { return m.config.Lease / 15 }
func (m *Member) callTimeout() time.Duration { return m.config.Lease / 5 }

// moment is a reading of both clocks: the monotonic one, which people cannot set, and the wall clock, which
// runs while a machine is suspended.
type moment struct{ mono, wall time.Duration }

const never = math.MinInt64 / 2 // a time before all others

var neverMoment = moment{never, never}

// latest returns the later of two moments. Its wall may be the smaller one: that clock can be set back.
func (a moment) latest(b moment) moment {
	if a.mono > b.mono {
		return a
	}
	return b
}

// since returns the time from b to a by the clock that shows more of it.
func (a moment) since(b moment) time.Duration { return max(a.mono-b.mono, a.wall-b.wall) }

func (m *Member) nowByBoth() moment {
	return moment{m.now(), m.config.Clock.Now().Round(0).Sub(m.start.Round(0))}
}

// condition records since when something has been so, if it is.
type condition struct {
	isSo  bool
	since time.Duration
}

// begin does nothing if it has begun already.
func (c *condition) begin(now time.Duration) {
	if !c.isSo {
		*c = condition{true, now}
	}
}

func (c *condition) end() { *c = condition{} }

// forLease reports whether it has been so for a lease.
func (m *Member) forLease(c condition) bool { return c.isSo && m.now()-c.since >= m.config.Lease }

// sleep waits for d, a signal, or the end of ctx or the member, for which it returns an error.
func (m *Member) sleep(ctx context.Context, d time.Duration, signals <-chan struct{}) error {
	timer := m.config.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-signals:
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
	return nil
}

// signal makes a loop look again.
func signal(toLoop chan struct{}) {
	select {
	case toLoop <- struct{}{}:
	default: // It has not received the last one yet.
	}
}
