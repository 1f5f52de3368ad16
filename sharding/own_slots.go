package sharding

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
)

// slotState says what this member may do with the keys of a slot.
type slotState uint32

const (
	// absent: the slot is not here.
	absent slotState = iota
	// serving: the queues take and hand out the slot's keys. In the other states they drop them.
	serving
	// stopping: the slot is here and is to move, but handlers of its keys may still run.
	stopping
)

// ownSlot is one slot as this member handles it.
//
//	      the table says so: see below       the table says that it is to move, and handOverAt has come
//	absent ────────────────────▶ serving ───────────────────────────────────▶ stopping
//	  ▲                            │ ▲                                            │ │
//	  │  the member is not valid   │ │    it is not to move, or a handler         │ │
//	  ├────────────────────────────┘ └──── does not return ───────────────────────┘ │
//	  └──── its handlers have returned: now the table is written ───────────────────┘
//
// Any slot becomes absent when the member is not valid, or the table gives it to another one. When the member
// leaves, all its slots are stopping at once. A slot is serving again only when no
// handover of it may still succeed. Queues read states and tenures without a lock; mu guards the rest.
type ownSlot struct {
	tenure   atomic.Pointer[tenure] // nil while the slot is absent
	handover handover               // the last attempt, or zero
	// While the slot is stopping: since when, and whether HandoverTimeout has ended its handlers' contexts.
	stoppingSince time.Duration
	timedOut      condition
	// Unless the member leaves, the slot must not stop before keepUntil: a handler hangs, or a write failed.
	keepUntil time.Duration
}

func (m *Member) state(slot int) slotState { return slotState(m.states[slot].Load()) }

func (m *Member) setState(slot int, to slotState) { m.states[slot].Store(uint32(to)) }

// updateSlotsLocked changes the states of slots as the table and the member's validity demand.
func (m *Member) updateSlotsLocked() {
	valid := m.updateValidityLocked()
	if valid != m.mu.wasValid {
		m.mu.wasValid = valid
		if valid {
			signal(m.toWork)
		} else { // If only the clock has jumped, refresh succeeds, and the member is valid again at once.
			signal(m.toRefresh)
		}
	}
	now, gained, lost, lossCause := m.now(), 0, 0, m.lossCauseLocked(valid)
	for i := range m.slots {
		if valid && m.mu.view.table.slots[i].holder == m.mu.self.id {
			if m.updateOwnLocked(i, now) {
				gained++
			}
		} else if m.state(i) != absent {
			m.dropLocked(i, lossCause)
			lost++
		}
	}
	if gained > 0 {
		m.logLocked(slog.LevelInfo, "Got slots", "member", m.mu.self.id, "slots", gained)
	}
	if lost > 0 {
		m.mu.counters.Lost += uint64(lost)
		level := slog.LevelWarn
		if valid { // Others took it for dead too early: a clock is wrong, or a person has edited records.
			level = slog.LevelError
		}
		m.logLocked(level, "Lost slots", "member", m.mu.self.id, "slots", lost, "why", lossCause)
	}
}

// lossCauseLocked returns why the member loses slots now, if it does.
func (m *Member) lossCauseLocked(valid bool) error {
	switch {
	case valid: // Others have taken them.
		return ErrNotHeld
	case m.mu.restored:
		return ErrRestored
	case m.hasLeftLocked():
		return ErrLeft
	}
	return leasing.ErrLost
}

// updateOwnLocked makes a slot of this member serving or stopping, unless a handover of it may still
// succeed. It reports whether the slot was absent and is here now.
func (m *Member) updateOwnLocked(i int, now time.Duration) (gained bool) {
	s, t, e := &m.slots[i], m.mu.view.table, &m.mu.effects
	if s.handover.mayStillSucceed(t) {
		return false
	}
	if m.state(i) == absent && !t.hasHashes(m.mu.hashes) { // Only the first write of them decides who fits.
		return false
	}
	// The write may be refused for long: without a pause the slot would stop again at once.
	if s.handover.unsure && m.forLease(m.mu.health.unwritable) {
		s.keepUntil = now + 4*m.config.HandoverTimeout
	}
	s.handover = handover{}
	from, to := m.state(i), serving
	isToMove := t.slots[i].next != "" && now >= s.keepUntil
	if m.mu.phase >= leaving || isToMove && (from == stopping || now >= m.mu.handOverAt) {
		to = stopping
	}
	if from == to {
		return false
	}
	if from == absent || from == stopping && s.timedOut.isSo { // Then the last tenure has ended.
		s.tenure.Store(&tenure{epoch: t.slots[i].epoch})
	}
	m.setState(i, to) // before the queues list keys: they drop those of absent slots
	if to == stopping {
		s.stoppingSince, s.timedOut = now, condition{}
		e.endOnHold = append(e.endOnHold, s.tenure.Load())
		signal(m.toWork)
	} else {
		e.toList = append(e.toList, i) // The queues have dropped its keys while it was absent or stopping.
	}
	return from == absent
}

// dropLocked makes a slot absent.
func (m *Member) dropLocked(i int, cause error) {
	m.setState(i, absent)
	m.mu.effects.toEnd = append(m.mu.effects.toEnd, ending{m.slots[i].tenure.Swap(nil), cause})
}

// timeHandoversLocked sets when this member may begin to hand over slots by a new table: in the order of the
// members' ids. It does not wait until others have done so, because they may be waiting for their handlers.
func (m *Member) timeHandoversLocked() {
	before := make(map[string]bool)
	for _, slot := range m.mu.view.table.slots {
		if slot.next != "" && slot.holder < m.mu.self.id {
			before[slot.holder] = true
		}
	}
	m.mu.handOverAt = m.now() + handoverPause*time.Duration(len(before))
}

// endTimedOutLocked ends the contexts of handlers whose slots have been stopping for HandoverTimeout. If they
// have not returned half of that later, they are serving until keepUntil. It returns when to look again.
func (m *Member) endTimedOutLocked(now time.Duration) (next time.Duration) {
	timeout, patience, kept := m.config.HandoverTimeout, m.config.HandoverTimeout/2, 0
	next = now + m.config.Lease
	for i := range m.slots {
		s := &m.slots[i]
		if s.keepUntil > now {
			next = min(next, s.keepUntil)
		}
		if m.state(i) != stopping || !m.isBusy(i) {
			continue
		}
		if now < s.stoppingSince+timeout {
			next = min(next, s.stoppingSince+timeout)
			continue
		}
		if !s.timedOut.isSo {
			s.timedOut.begin(now)
			m.mu.effects.toEnd = append(m.mu.effects.toEnd, ending{s.tenure.Load(), ErrHandover})
		}
		if m.mu.phase != staying { // It cannot keep the slot.
			continue
		}
		at := s.timedOut.since + patience
		if now >= at {
			kept++
			m.mu.counters.Kept++
			s.keepUntil = now + 4*timeout
			at = s.keepUntil
		}
		next = min(next, at)
	}
	if kept > 0 {
		m.logLocked(slog.LevelError,
			"Handlers do not return although their contexts have ended. Keeping their slots for now",
			"member", m.mu.self.id, "slots", kept, "next_try_in", 4*timeout)
	}
	return next
}
