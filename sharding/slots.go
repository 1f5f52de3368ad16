package sharding

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// slotState is what a member may do with the keys of a slot.
type slotState uint32

const (
	// absent: the member does not hold the slot. Adds are ignored, and queued keys are dropped when their turn comes.
	absent slotState = iota
	// held: the member hands out the slot's keys.
	held
	// stopping: the slot is to move. Its keys are no longer handed out, but those that are being handled may go on.
	stopping
)

// slot is a member's part in a slot.
//
//	         the table says so               the table says that it is to move (and its queued keys are finished)
//	absent ─────────────────────▶ held ─────────────────────────────────────▶ stopping
//	  ▲                            │ ▲                                            │ │
//	  │  the member is not valid   │ │    it is not to move, or a handler         │ │
//	  ├────────────────────────────┘ └──── does not return ───────────────────────┘ │
//	  └──── its handlers have returned: now the table is written ───────────────────┘
//
// Queues read states and holdings without a lock. All else is guarded by the member's mu.
type slot struct {
	// holding is there unless the slot is absent.
	holding atomic.Pointer[holding]
	// since is when the slot began to stop, and ended says that HandoverTimeout has passed since.
	since time.Duration
	ended bool
	// unlisted: the slot has been stopping since it was absent, so its keys are still to be listed.
	unlisted bool
	// keep is until when the slot is not to stop again, because a handler did not return.
	keep time.Duration
	// finish is until when a slot that is to move stays held at most, so that its queued keys are handled, and zero for
	// others. finished says that no key is queued any more.
	finish   time.Duration
	finished bool
	// released is the epoch of the table of that id on which a handover was tried. The slot stays absent until a newer
	// table shows what has become of that: an attempt that reported an error may still succeed.
	released   int64
	releasedID string
}

func (m *Member) state(slot int) slotState { return slotState(m.states[slot].Load()) }

func (m *Member) setState(slot int, to slotState) { m.states[slot].Store(uint32(to)) }

// slotQueue is a queue of a member, as the member sees it.
type slotQueue interface {
	// handlers returns how many keys of the slot are being handled.
	handlers(slot int) int
	// gained makes the queue list the keys of these slots. settled is called when slots are held or absent again.
	gained(slots []int)
	settled(slots []int)
	// queuedSlots returns the slots with queued keys, nil if they need not be finished before a slot moves.
	queuedSlots() map[int]bool
}

// register adds a queue. The slots that are held already count as gained.
func (m *Member) register(q slotQueue) {
	finishes := q.queuedSlots() != nil
	m.mu.Lock()
	m.mu.finishes = m.mu.finishes || finishes
	queues := append(slices.Clone(*m.queues.Load()), q)
	m.queues.Store(&queues)
	var slots []int
	for s := range m.slots {
		if m.state(s) != absent {
			slots = append(slots, s)
		}
	}
	m.mu.Unlock()
	q.gained(slots)
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

// changes are what follows from changed slots and must happen without the lock.
type changes struct {
	gained, settled []int
	// ended are holdings that must end with that cause.
	ended []*holding
	cause error
}

// do carries changes out: the queues hear of gained slots, and contexts end.
func (m *Member) do(c changes) {
	for _, h := range c.ended {
		h.end(c.cause)
	}
	if len(c.gained)+len(c.settled) == 0 {
		return
	}
	for _, q := range *m.queues.Load() {
		q.gained(c.gained)
		q.settled(c.settled)
	}
}

// look lets slots be held, or not, as what is known now and the time demand.
func (m *Member) look() {
	m.mu.Lock()
	m.applyAndUnlock()
}

// applyAndUnlock unlocks mu after something has changed that decides which slots are held.
func (m *Member) applyAndUnlock() {
	c := m.applyLocked()
	m.mu.Unlock()
	m.do(c)
}

// applyLocked lets each slot be held or not, as the table and the member's validity demand. The caller must pass the
// result to do after it has unlocked mu.
func (m *Member) applyLocked() changes {
	valid := m.validLocked()
	c := changes{cause: ErrLeaseLost}
	switch {
	case valid:
		m.mu.problem, c.cause = nil, ErrNotHeld
	case m.mu.leaving:
		c.cause = ErrLeft
	}
	now := m.now()
	for i := range m.slots {
		if valid && m.mu.view.table.slots[i].holder == m.mu.self.id {
			m.applyMineLocked(i, now, &c)
		} else if m.state(i) != absent {
			m.dropLocked(i, &c)
		}
	}
	m.logChangesLocked(c)
	return c
}

// applyMineLocked is applyLocked for a slot of which the table says that this member holds it.
func (m *Member) applyMineLocked(i int, now time.Duration, c *changes) {
	s, t := &m.slots[i], m.mu.view.table
	if s.mayBeGiven(t) {
		return
	}
	s.released, s.releasedID = 0, ""
	mustStop := m.mu.leaving || t.slots[i].next != "" && now >= s.keep
	if !mustStop || m.state(i) != held {
		s.finish, s.finished = 0, false
	}
	switch state := m.state(i); {
	case state == absent:
		s.ended, s.since, s.unlisted = false, now, mustStop
		s.holding.Store(&holding{epoch: t.slots[i].epoch})
		if mustStop {
			m.setState(i, stopping)
			signal(m.toWork)
		} else {
			m.setState(i, held) // Before the queues list their keys.
			c.gained = append(c.gained, i)
		}
	case state == held && mustStop && !m.mu.leaving && m.mu.finishes && !s.isFinished(now):
		if s.finish == 0 {
			s.finish = now + m.config.HandoverTimeout
			signal(m.toWork)
		}
	case state == held && mustStop:
		s.ended, s.since = false, now
		m.setState(i, stopping)
		signal(m.toWork)
	case state == stopping && !mustStop:
		if s.ended {
			s.holding.Store(&holding{epoch: t.slots[i].epoch})
		}
		m.setState(i, held)
		c.settled = append(c.settled, i)
		if s.unlisted {
			c.gained = append(c.gained, i)
		}
	}
}

// mayBeGiven reports whether a handover that was tried on t, or on a later table, may still succeed.
func (s *slot) mayBeGiven(t *table) bool { return s.releasedID == t.id && s.released >= t.epoch }

func (s *slot) isFinished(now time.Duration) bool {
	return s.finished || s.finish > 0 && now >= s.finish
}

// dropLocked makes a slot absent.
func (m *Member) dropLocked(i int, c *changes) {
	s := &m.slots[i]
	m.setState(i, absent)
	c.ended = append(c.ended, s.holding.Swap(nil))
	c.settled = append(c.settled, i)
}

// releaseLocked makes slot i absent if none of its keys is being handled, so that it can be given away by a write on
// table t. It reports whether it did, or had done so before.
func (m *Member) releaseLocked(i int, t *table, c *changes) bool {
	s := &m.slots[i]
	// In this order: a key that is handed out now is seen by isBusy, or sees that the slot is not held.
	if m.state(i) == held || m.isBusy(i) {
		return false
	}
	if m.state(i) == stopping {
		m.dropLocked(i, c)
		stats, took := &m.mu.stats, m.now()-s.since
		stats.HandedOver++
		stats.HandoverTime += took
		stats.LongestHandover = max(stats.LongestHandover, took)
	}
	s.released, s.releasedID = t.epoch, t.id
	return true
}

// hurryLocked ends the contexts of the handlers of slots that have been stopping for HandoverTimeout, and keeps slots
// whose handlers do not return even then. It returns when to look again, and the holdings to end.
func (m *Member) hurryLocked(now time.Duration) (next time.Duration, c changes) {
	c.cause = ErrHandover
	limit, patience := m.config.HandoverTimeout, m.config.HandoverTimeout*3/2
	next = now + m.config.Lease
	stuck := 0
	for i := range m.slots {
		s := &m.slots[i]
		if m.state(i) != stopping || !m.isBusy(i) {
			continue
		}
		switch passed := now - s.since; {
		case passed >= patience && !m.mu.leaving:
			stuck++
			s.keep = now + 4*limit
			next = min(next, s.keep)
			m.mu.stats.Kept++
		case passed >= limit:
			if !s.ended {
				s.ended = true
				c.ended = append(c.ended, s.holding.Load())
			}
			if !m.mu.leaving {
				next = min(next, s.since+patience)
			}
		default:
			next = min(next, s.since+limit)
		}
	}
	if stuck > 0 {
		m.logger.Error("Handlers do not return although their contexts have ended. Keeping their slots for now",
			"member", m.mu.self.id, "slots", stuck, "next_try_in", 4*limit)
	}
	return next, c
}

// finishQueued finds out which of the slots that stay held for their queued keys have none left. It reports whether others have
// some.
func (m *Member) finishQueued() (again bool) {
	m.mu.Lock()
	var waiting []int
	for i := range m.slots {
		if s := &m.slots[i]; s.finish > 0 && !s.finished && m.state(i) == held {
			waiting = append(waiting, i)
		}
	}
	m.mu.Unlock()
	if len(waiting) == 0 {
		return false
	}
	queued := make(map[int]bool)
	for _, q := range *m.queues.Load() {
		maps.Copy(queued, q.queuedSlots())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range waiting {
		m.slots[i].finished = !queued[i]
	}
	return len(queued) > 0
}

// logChangesLocked logs which slots the member has got and lost.
func (m *Member) logChangesLocked(c changes) {
	if len(c.gained) > 0 {
		m.mu.stats.Gained += uint64(len(c.gained))
		m.logger.Info("Got slots", "member", m.mu.self.id, "slots", len(c.gained))
	}
	if n := len(c.ended); n > 0 {
		m.mu.stats.Lost += uint64(n)
		log := m.logger.Warn
		if errors.Is(c.cause, ErrNotHeld) {
			log = m.logger.Info
		}
		log("Lost slots", "member", m.mu.self.id, "slots", n, "why", c.cause)
	}
}
