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
	// held: the queues take and hand out the slot's keys. In the other states they drop them.
	held
	// stopping: the slot is here and is to move, but handlers of its keys may still run.
	stopping
)

// ownSlot is one slot as this member handles it.
//
//	      the table says so: see below       the table says that it is to move, and handOverAt has come
//	absent ─────────────────────▶ held ─────────────────────────────────────▶ stopping
//	  ▲                            │ ▲                                            │ │
//	  │  the member is not valid   │ │    it is not to move, or a handler         │ │
//	  ├────────────────────────────┘ └──── does not return ───────────────────────┘ │
//	  └──── its handlers have returned: now the table is written ───────────────────┘
//
// Any slot becomes absent when the member is not valid, or the table gives it to another one. When the member
// leaves, or gets a slot that is to move, that is stopping at once. A slot is held again only when no
// handover of it may still succeed. Queues read states and tenures without a lock; mu guards the rest.
type ownSlot struct {
	tenure   atomic.Pointer[tenure] // nil while the slot is absent
	stop     stopInfo
	handover handover // the last attempt, or zero
	// Unless the member leaves, the slot must not stop before keepUntil: a handler hangs, or a write failed.
	keepUntil time.Duration
}

// stopInfo has what is known of a slot while it is stopping.
type stopInfo struct {
	// since is when the slot began to stop, and timedOutAt when its handlers' contexts were ended, or zero.
	since, timedOutAt time.Duration
}

func (m *Member) state(slot int) slotState { return slotState(m.states[slot].Load()) }

func (m *Member) setState(slot int, to slotState) { m.states[slot].Store(uint32(to)) }

// updateSlotsLocked makes each slot held, stopping or absent, as the table and the member's validity demand.
func (m *Member) updateSlotsLocked() {
	valid, wasValid := m.updateValidityLocked(), m.mu.wasValid
	m.mu.wasValid = valid
	hasLeft := m.mu.phase >= retiring || m.ctx.Err() != nil
	switch {
	case valid && !wasValid:
		signal(m.toWork)
	case wasValid && !valid && !hasLeft:
		// If only the clock has jumped, refresh succeeds, and the member is valid again at once.
		signal(m.toRefresh)
	}
	cause := leasing.ErrLost
	switch {
	case m.mu.restored:
		cause = ErrRestored
	case valid:
		cause = ErrNotHeld // Others have taken the slot.
	case hasLeft:
		cause = ErrLeft
	}
	now, gained, lost := m.now(), 0, 0
	for i := range m.slots {
		if valid && m.mu.view.table.slots[i].holder == m.mu.self.id {
			if m.updateOwnLocked(i, now) {
				gained++
			}
		} else if m.state(i) != absent {
			m.dropLocked(i, cause)
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
		m.logLocked(level, "Lost slots", "member", m.mu.self.id, "slots", lost, "why", cause)
	}
}

// updateOwnLocked makes a slot of this member held or stopping, unless a handover of it may still succeed. It
// reports whether the slot was absent and is here now.
func (m *Member) updateOwnLocked(i int, now time.Duration) (gained bool) {
	s, t, e := &m.slots[i], m.mu.view.table, &m.mu.effects
	if s.handover.mayStillSucceed(t) {
		return false
	}
	// The write may be refused for long: without a pause the slot would stop again at once.
	if s.handover.unsure && m.forLease(m.mu.health.notWritten) {
		s.keepUntil = now + 4*m.config.HandoverTimeout
	}
	s.handover = handover{}
	from, to := m.state(i), held
	isToMove := t.slots[i].next != "" && now >= s.keepUntil
	if m.mu.phase >= leaving || isToMove && (from == stopping || now >= m.mu.handOverAt) {
		to = stopping
	}
	if from == to {
		return false
	}
	if from == absent || from == stopping && s.stop.timedOutAt > 0 { // Then the last tenure has ended.
		s.tenure.Store(&tenure{epoch: t.slots[i].epoch})
	}
	m.setState(i, to) // before the queues list keys: they drop those of absent slots
	if to == stopping {
		s.stop = stopInfo{since: now}
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

// endTimedOutLocked ends the contexts of handlers whose slots have been stopping for HandoverTimeout. If they
// have not returned half of that later, the slots are held until keepUntil. It returns when to look again.
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
		switch {
		case s.stop.timedOutAt > 0 && now >= s.stop.timedOutAt+patience && m.mu.phase == staying:
			kept++
			s.keepUntil = now + 4*timeout
			next = min(next, s.keepUntil)
			m.mu.counters.Kept++
		case now >= s.stop.since+timeout:
			if s.stop.timedOutAt == 0 {
				s.stop.timedOutAt = now
				m.mu.effects.toEnd = append(m.mu.effects.toEnd, ending{s.tenure.Load(), ErrHandover})
			}
			if m.mu.phase == staying {
				next = min(next, s.stop.timedOutAt+patience)
			}
		default:
			next = min(next, s.stop.since+timeout)
		}
	}
	if kept > 0 {
		m.logLocked(slog.LevelError,
			"Handlers do not return although their contexts have ended. Keeping their slots for now",
			"member", m.mu.self.id, "slots", kept, "next_try_in", 4*timeout)
	}
	return next
}
