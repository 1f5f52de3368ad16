package sharding

import (
	"errors"
	"time"
)

// counts are the numbers of a member since it joined.
type counts struct {
	gained, handedOver, lost, kept, lostLeases uint64
	handover, longestHandover                  time.Duration
}

// Stats are the numbers of a member. Those that only grow count since it joined.
type Stats struct {
	// Group and Member are the group's name and the member's id.
	Group, Member string
	// Err is what [Member.Err] returns.
	Err error
	// Members is how many members are alive, as far as this one knows. It counts itself.
	Members int
	// Held is the number of slots that the member holds, and Stopping how many of them are about to move.
	Held, Stopping int
	// Gained is how many slots the member has got, HandedOver how many it has handed over, and Lost how many it
	// stopped to hold without that, because it was not valid any more.
	Gained, HandedOver, Lost uint64
	// Kept is how often a slot was not handed over because a handler did not return.
	Kept uint64
	// LostLeases is how often others took the member for dead.
	LostLeases uint64
	// HandoverTime is how long all handovers took together, and LongestHandover the longest, from the moment that the
	// slot was to move until its last handler had returned.
	HandoverTime, LongestHandover time.Duration
}

// Stats returns the member's numbers. It takes a few microseconds.
func (m *Member) Stats() Stats {
	err := m.Err()
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.mu.counts
	st := Stats{
		Group: m.config.Group, Member: m.mu.self.id, Err: err,
		Gained: c.gained, HandedOver: c.handedOver, Lost: c.lost, Kept: c.kept, LostLeases: c.lostLeases,
		HandoverTime: c.handover, LongestHandover: c.longestHandover,
	}
	now := m.now()
	for _, s := range m.mu.view.members {
		if s.valid && !s.gone && !s.expired(now) {
			st.Members++
		}
	}
	for s := range m.slots {
		switch m.state(s) {
		case held:
			st.Held++
		case stopping:
			st.Held++
			st.Stopping++
		}
	}
	return st
}

// Slot is what a member knows of a slot.
type Slot struct {
	// Holder is the id of the member that holds the slot, and Next of the one that it is to move to. They are empty
	// if there is none.
	Holder, Next string
	// Epoch is what [Epoch] returns for handlers of this holder.
	Epoch int64
	// Held reports whether this member holds the slot now. A member that is not valid holds none, whatever Holder says.
	Held bool
	// Stopping is for how long the slot has been about to move, if this member holds it, and Handlers is how many of
	// its keys are being handled here.
	Stopping time.Duration
	Handlers int
}

// Slots returns what the member knows of all slots: of its own it knows all, and of others what the table said last.
// It returns nil if the member has not seen a table.
func (m *Member) Slots() []Slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.mu.view.table
	if t == nil {
		return nil
	}
	slots := make([]Slot, len(t.slots))
	for i, s := range t.slots {
		state := m.state(i)
		slots[i] = Slot{Holder: s.holder, Next: s.next, Epoch: s.epoch, Held: state != absent, Handlers: m.handlers(i)}
		if state == stopping {
			slots[i].Stopping = m.now() - m.slots[i].since
		}
	}
	return slots
}

// logChangesLocked logs which slots the member has got and lost.
func (m *Member) logChangesLocked(c changes) {
	if len(c.gained) > 0 {
		m.mu.counts.gained += uint64(len(c.gained))
		m.logger.Info("Got slots", "member", m.mu.self.id, "slots", len(c.gained))
	}
	if n := len(c.ended); n > 0 {
		m.mu.counts.lost += uint64(n)
		log := m.logger.Warn
		if errors.Is(c.cause, ErrNotHeld) {
			log = m.logger.Info
		}
		log("Lost slots", "member", m.mu.self.id, "slots", n, "why", c.cause)
	}
}
