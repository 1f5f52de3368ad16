package sharding

import "time"

// expireLoop makes all slots absent, and ends their handlers' contexts, when the member's validity ends, no
// matter what holds up the other loops. It looks more often because timers stand still while a machine is
// suspended. All loops change when validity ends, under mu, with updateValidityLocked; this one reads it
// without mu.
func (m *Member) expireLoop() {
	for {
		now := m.nowByBoth()
		remaining := min(time.Duration(m.validUntil.Load())-now.mono, time.Duration(m.wallUntil.Load())-now.wall)
		if m.expired() {
			m.expire()
			remaining = m.config.Lease
		}
		if m.sleep(m.ctx, min(remaining, m.config.Lease/60), m.toExpire) != nil {
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
	validFor := m.config.Lease - m.margin()
	was := m.validUntil.Swap(int64(from.mono + validFor))
	m.wallUntil.Store(int64(from.wall + validFor))
	if int64(from.mono+validFor) > was { // expireLoop may be asleep for longer than this lasts.
		signal(m.toExpire)
	}
	return !m.expired()
}

// expired reports whether the member's validity has ended by one of the clocks.
func (m *Member) expired() bool {
	now := m.nowByBoth()
	return now.mono >= time.Duration(m.validUntil.Load()) || now.wall >= time.Duration(m.wallUntil.Load())
}
