package sharding

import "time"

// handover is an attempt to give a slot away by a write on the table of that id and epoch. While it may still
// succeed, the slot stays absent. unsure: the write reported an error, and may take effect later.
type handover struct {
	table  string
	epoch  int64
	unsure bool
	// took is how long the slot was stopping. uncounted: it is not in Stats yet.
	took      time.Duration
	uncounted bool
}

// mayStillSucceed reports whether the handover may still succeed although the table is t.
func (h handover) mayStillSucceed(t *table) bool { return h.table == t.id && h.epoch >= t.epoch }

// timeHandoversLocked sets when this member may begin to hand over slots: in the order of the members' ids.
// It does not wait until others have done so, because they may be waiting for their handlers.
func (m *Member) timeHandoversLocked() {
	before, view := make(map[string]bool), &m.mu.view
	for _, slot := range view.table.slots {
		if slot.next != "" && slot.holder < m.mu.self.id {
			before[slot.holder] = true
		}
	}
	m.mu.handOverAt = view.learnedAt + spacing*time.Duration(len(before))
}

// endTimedOutLocked ends the contexts of handlers whose slots have been stopping for HandoverTimeout, and
// keeps slots whose handlers do not return even then. It returns when to look again.
func (m *Member) endTimedOutLocked(now time.Duration) (next time.Duration) {
	limit, patience, stuck := m.config.HandoverTimeout, m.config.HandoverTimeout/2, 0
	next = now + m.config.Lease
	for i := range m.slots {
		s := &m.slots[i]
		if s.keepUntil > now {
			next = min(next, s.keepUntil)
		}
		if m.state(i) != stopping || !m.isBusy(i) {
			continue
		}
		switch passed := now - s.stop.since; {
		case s.stop.timedOutAt > 0 && now >= s.stop.timedOutAt+patience && m.mu.phase == staying:
			stuck++
			s.keepUntil = now + 4*limit
			next = min(next, s.keepUntil)
			m.mu.stats.Kept++
		case passed >= limit:
			if s.stop.timedOutAt == 0 {
				s.stop.timedOutAt = now
				m.mu.changes.toEnd = append(m.mu.changes.toEnd, ending{s.holding.Load(), ErrHandover})
			}
			if m.mu.phase == staying {
				next = min(next, s.stop.timedOutAt+patience)
			}
		default:
			next = min(next, s.stop.since+limit)
		}
	}
	if stuck > 0 {
		m.logger.Error("Handlers do not return although their contexts have ended. Keeping their slots for now",
			"member", m.mu.self.id, "slots", stuck, "next_try_in", 4*limit)
	}
	return next
}

// handOver makes next give away the member's slots that are to move and whose handlers have returned. If a
// slot is to stay after all while an attempt may still succeed, next names its holder anew: that ends it.
func (p *planner) handOver(next *table) {
	n, nobodyTakes := 0, p.m.mu.phase >= leaving && len(p.takers) == 0
	for i, slot := range next.slots {
		switch {
		case slot.holder != p.selfID:
		case slot.next == "" && p.m.mu.phase == staying && p.m.slots[i].handover.mayStillSucceed(p.t):
			next.give(i, p.selfID)
		case !p.takers[slot.next] && !nobodyTakes:
		case p.m.releaseLocked(i, p.t):
			if nobodyTakes {
				slot.next = ""
			}
			next.give(i, slot.next)
			n++
		}
	}
	if n > 0 {
		p.m.logger.Info("Handing over slots", "member", p.selfID, "slots", n)
	}
}

// releaseLocked makes slot i absent if none of its keys is being handled, so that a write on table t can give
// it away. It reports whether the slot is absent now.
func (m *Member) releaseLocked(i int, t *table) bool {
	s := &m.slots[i]
	// The state comes first: a key that is handed out now is seen by isBusy, or sees that the slot is not held.
	if m.state(i) == held || m.isBusy(i) {
		return false
	}
	if m.state(i) == stopping {
		m.dropLocked(i, ErrNotHeld)
		s.handover.took, s.handover.uncounted = m.now()-s.stop.since, true
	}
	s.handover.unsure = s.handover.unsure && s.handover.mayStillSucceed(t)
	s.handover.table, s.handover.epoch = t.id, t.epoch
	return true
}

// countHandoverLocked counts a handover when the table shows that it has succeeded.
func (m *Member) countHandoverLocked(i int, valid bool) {
	h, t := &m.slots[i].handover, m.mu.view.table
	if !h.uncounted || valid && h.mayStillSucceed(t) {
		return
	}
	h.uncounted = false
	if stats := &m.mu.stats; valid && h.table == t.id && t.slots[i].holder != m.mu.self.id {
		stats.HandedOver++
		stats.HandoverTime += h.took
		stats.LongestHandover = max(stats.LongestHandover, h.took)
	}
}
