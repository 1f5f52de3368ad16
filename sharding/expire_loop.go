package sharding

import "time"

// expireLoop makes all slots absent, and ends their handlers' contexts, when the member's validity ends, no
// matter what holds up the other loops. It looks at least 60 times in a lease, because timers stand still
// while a machine is suspended. All loops change when validity ends, under mu, with updateValidityLocked;
// this one reads it without mu.
func (m *Member) expireLoop() {
	for {
		pause := m.config.Lease / 60
		if remaining := m.validFor(); remaining > 0 {
			pause = min(pause, remaining)
		} else {
			m.expire()
		}
		if m.sleep(m.ctx, pause, m.toExpire) != nil {
			return
		}
	}
}

// expire is an update whose logging does not hold up the caller: the logger may block.
func (m *Member) expire() {
	e := m.updateUnderLock(func() {})
	e.endTenures()
	go m.carryOut(e)
}

// updateValidityLocked publishes until when the member is valid: for a lease less the margin after its last
// renewal began, or its last look at the table if that was earlier. It reports whether it is valid now.
func (m *Member) updateValidityLocked() bool {
	self, view := &m.mu.self, &m.mu.view
	from := moment{min(self.renewed.mono, view.confirmed.mono), min(self.renewed.wall, view.confirmed.wall)}
	if !self.alive || m.mu.restored || view.unusable != nil ||
		view.table == nil || self.follows != view.table.id {
		from = neverMoment
	}
	validity := m.config.Lease - m.margin()
	was := m.validUntil.Swap(int64(from.mono + validity))
	m.wallUntil.Store(int64(from.wall + validity))
	if int64(from.mono+validity) > was { // expireLoop may be asleep for longer than this lasts.
		signal(m.toExpire)
	}
	return !m.expired()
}

// validFor returns for how much longer the member is valid, by the clock that shows less.
func (m *Member) validFor() time.Duration {
	now := m.nowByBoth()
	return min(time.Duration(m.validUntil.Load())-now.mono, time.Duration(m.wallUntil.Load())-now.wall)
}

func (m *Member) expired() bool { return m.validFor() <= 0 }
