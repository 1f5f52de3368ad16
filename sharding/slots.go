package sharding

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
)

// slotState is what a member may do with the keys of a slot.
type slotState uint32

const (
	// absent: the member does not hold the slot. Adds are ignored, and queued keys are dropped when their
	// turn comes.
	absent slotState = iota
	// held: the member hands out the slot's keys.
	held
	// stopping: the slot is to move. Its keys are no longer handed out, but those that are being handled may
	// go on.
	stopping
)

// ownSlot is one slot as this member handles it.
//
//	         the table says so               the table says that it is to move, and it is this member's turn
//	absent ─────────────────────▶ held ─────────────────────────────────────▶ stopping
//	  ▲                            │ ▲                                            │ │
//	  │  the member is not valid   │ │    it is not to move, or a handler         │ │
//	  ├────────────────────────────┘ └──── does not return ───────────────────────┘ │
//	  └──── its handlers have returned: now the table is written ───────────────────┘
//
// A slot that is already to move when the member gets it goes from absent to stopping.
//
// Queues read states and holdings without a lock. The member's mu guards all else.
type ownSlot struct {
	// holding is nil while the slot is absent.
	holding  atomic.Pointer[holding]
	stop     stop
	handover handover
	// keepUntil is until when the slot must not stop again, because a handler did not return or the server
	// refused the handover.
	keepUntil time.Duration
	// heldAs is the member's id when it held the slot last.
	heldAs string
}

// stop belongs to a slot that is stopping.
type stop struct {
	// since is when it began. ended is when the contexts of its handlers ended because HandoverTimeout had
	// passed, or zero.
	since, ended time.Duration
	// unlisted: the slot was never held, so its keys are still to be listed.
	unlisted bool
}

// handover is an attempt to give a slot away by a write on the table of that id and epoch. An attempt that
// reported an error (unsure) may still succeed, so the slot stays absent until a newer table shows how it has
// ended.
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

func (m *Member) state(slot int) slotState { return slotState(m.states[slot].Load()) }

// countLocked returns how many slots the member holds, and how many of these are stopping.
func (m *Member) countLocked() (all, stops int) {
	for i := range m.states {
		switch m.state(i) {
		case stopping:
			all, stops = all+1, stops+1
		case held:
			all++
		}
	}
	return all, stops
}

func (m *Member) setState(slot int, to slotState) { m.states[slot].Store(uint32(to)) }

// memberQueue is a queue of a member, as the member sees it.
type memberQueue interface {
	// handlers returns how many keys of the slot are being handled.
	handlers(slot int) int
	// gained makes the queue list the keys of these slots, and does not block. stopEnded is called when slots
	// are held or absent again.
	gained(slots []int)
	stopEnded(slots []int)
	// fingerprint returns the queue's name, and what identifies its hash.
	fingerprint() (name, hash string)
}

// register adds a queue. The slots that are held already count as gained.
func (m *Member) register(q memberQueue) {
	name, hash := q.fingerprint()
	var incompatible error
	m.mu.Lock()
	all, made := m.config.Queues, m.mu.made
	if slices.Contains(made, name) || !slices.Contains(all, name) && len(all)+len(made) > 0 {
		m.mu.Unlock()
		panic(fmt.Sprintf("sharding: a queue %q beside %q: give each queue of a member a name of its own, "+
			"and Config.Queues all names", name, made))
	}
	m.mu.made = append(m.mu.made, name)
	if hash != "" {
		m.mu.hashes = maps.Collect(maps.All(m.mu.hashes))
		m.mu.hashes[name] = hash
		if view := &m.mu.view; view.isThere() && view.incompatible == nil {
			incompatible = m.checkHashesLocked(view.table)
			view.incompatible = incompatible
		}
		signal(m.toConfirm)
	}
	signal(m.toRenew) // The record says whether the member takes slots.
	queues := append(slices.Clone(*m.queues.Load()), q)
	m.queues.Store(&queues)
	m.mu.Unlock()
	if incompatible != nil {
		m.reapply() // at once: the server's next answer may take long
	}
	var slots []int
	for s := range m.slots {
		if m.state(s) != absent {
			slots = append(slots, s)
		}
	}
	q.gained(slots)
}

// Slot is what [Member.Slots] shows of a slot.
type Slot struct {
	// Holder is the id of the member that holds the slot. Next is the one to which it is to move. They are
	// empty if there is none.
	Holder, Next string
	// Fence is what [Fence] returns for handlers of this holder: the epoch in which it got the slot.
	Fence int64
	// Held reports whether this member holds the slot now. A member that is not valid holds none, whatever
	// Holder says.
	Held bool
	// Stopping is for how long this member has been waiting to hand over the slot. Handlers is how many of its
	// keys are being handled here.
	Stopping time.Duration
	Handlers int
}

// Slots returns all slots. The holders are those of the last table that the member has seen: nil before the
// first one.
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
		slots[i] = Slot{
			Holder: s.holder, Next: s.next, Fence: s.epoch, Held: state != absent, Handlers: m.handlers(i),
		}
		if state == stopping {
			slots[i].Stopping = m.now() - m.slots[i].stop.since
		}
	}
	return slots
}

// changes are what must happen after mu is unlocked, because slots have changed.
type changes struct {
	// The queues must hear of the slots in gained and stopEnded.
	gained, stopEnded []int
	// ended are holdings that must end. stopping are holdings whose keys on hold must be released.
	ended    []ending
	stopping []*holding
}

type ending struct {
	holding *holding
	cause   error
}

// reapply brings the slots up to date after time has passed.
func (m *Member) reapply() {
	m.mu.Lock()
	m.unlock()
}

// unlock brings the slots up to date, unlocks mu, and carries out what follows. It takes the place of
// mu.Unlock where something may have changed that decides which slots are held.
func (m *Member) unlock() {
	m.applyLocked()
	c := m.mu.changes
	m.mu.changes = changes{}
	m.mu.Unlock()
	for _, e := range c.ended {
		e.holding.end(e.cause)
	}
	for _, h := range c.stopping {
		h.endHolds(ErrHandover)
	}
	if len(c.gained)+len(c.stopEnded) == 0 {
		return
	}
	for _, q := range *m.queues.Load() {
		q.gained(c.gained)
		if len(c.stopEnded) > 0 {
			go q.stopEnded(c.stopEnded) // The queue below, which it calls, must not block a member's loops.
		}
	}
}

// applyLocked makes each slot held, stopping or absent, as the table and the member's validity demand.
func (m *Member) applyLocked() {
	valid, was := m.validLocked(), m.mu.wasValid
	cause := workqueue.ErrLeaseLost
	switch {
	case valid:
		cause = ErrNotHeld
		if !was {
			signal(m.toRenew) // New members wait for that; see mustHearOthersLocked.
			signal(m.toWork)
		}
	case m.mu.leaving:
		cause = ErrLeft
	case was:
		m.mu.self.listedUpTo = notListed
		signal(m.toRenew) // If the clock has jumped, it is valid again at once.
		signal(m.toConfirm)
	}
	m.mu.wasValid = valid
	now, lost, before := m.now(), 0, len(m.mu.changes.gained)
	if valid {
		m.timeHandoversLocked()
	}
	for i := range m.slots {
		m.countHandoverLocked(i, valid)
		if valid && m.mu.view.table.slots[i].holder == m.mu.self.id {
			m.applyToOwnLocked(i, now)
		} else if m.state(i) != absent {
			m.dropLocked(i, cause)
			lost++
		}
	}
	if gained := len(m.mu.changes.gained) - before; gained > 0 {
		m.mu.stats.Gained += uint64(gained)
		m.logger.Info("Got slots", "member", m.mu.self.id, "slots", gained)
	}
	if lost > 0 {
		m.mu.stats.Lost += uint64(lost)
		log := m.logger.Warn
		if valid {
			log = m.logger.Info
		}
		log("Lost slots", "member", m.mu.self.id, "slots", lost, "why", cause)
	}
}

// timeHandoversLocked sets when this member may begin to hand over its slots that are to move. Members do so
// in the order of their ids: each write makes those of others fail, and their slots have no holder meanwhile.
// A member waits for spacing for each one before it, not longer: that one may be waiting for its handlers.
func (m *Member) timeHandoversLocked() {
	before := make(map[string]bool)
	view := &m.mu.view
	for _, s := range view.table.slots {
		if s.next != "" && s.holder < m.mu.self.id {
			before[s.holder] = true
		}
	}
	m.mu.handOverAt = view.learned + spacing*time.Duration(len(before))
}

// applyToOwnLocked is applyLocked for a slot that the table gives this member.
func (m *Member) applyToOwnLocked(i int, now time.Duration) {
	s, t, c := &m.slots[i], m.mu.view.table, &m.mu.changes
	if s.handover.mayStillSucceed(t) {
		return
	}
	s.handover = handover{}
	from, to := m.state(i), held
	isToMove := t.slots[i].next != "" && now >= s.keepUntil
	if m.mu.leaving || isToMove && (from == stopping || now >= m.mu.handOverAt) {
		to = stopping
	}
	if from == to {
		return
	}
	if from == absent || from == stopping && s.stop.ended > 0 {
		s.holding.Store(&holding{epoch: t.slots[i].epoch})
	}
	s.heldAs = m.mu.self.id
	m.setState(i, to) // before the queues list their keys
	if to == stopping {
		s.stop = stop{since: now, unlisted: from == absent}
		c.stopping = append(c.stopping, s.holding.Load())
		signal(m.toWork)
		return
	}
	if from == stopping {
		c.stopEnded = append(c.stopEnded, i)
	}
	if from == absent || s.stop.unlisted {
		c.gained = append(c.gained, i)
	}
}

// dropLocked makes a slot absent.
func (m *Member) dropLocked(i int, cause error) {
	m.setState(i, absent)
	c := &m.mu.changes
	c.ended = append(c.ended, ending{m.slots[i].holding.Swap(nil), cause})
	c.stopEnded = append(c.stopEnded, i)
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

// endOverdueLocked ends the contexts of handlers whose slots have been stopping for HandoverTimeout. It keeps
// slots whose handlers do not return even then, and returns when to look again.
func (m *Member) endOverdueLocked(now time.Duration) (next time.Duration) {
	limit, patience := m.config.HandoverTimeout, m.config.HandoverTimeout/2
	next = now + m.config.Lease
	stuck := 0
	for i := range m.slots {
		s := &m.slots[i]
		if s.keepUntil > now {
			next = min(next, s.keepUntil)
		}
		if m.state(i) != stopping || !m.isBusy(i) {
			continue
		}
		switch passed := now - s.stop.since; {
		case s.stop.ended > 0 && now >= s.stop.ended+patience && !m.mu.leaving:
			stuck++
			s.keepUntil = now + 4*limit
			next = min(next, s.keepUntil)
			m.mu.stats.Kept++
		case passed >= limit:
			if s.stop.ended == 0 {
				s.stop.ended = now
				m.mu.changes.ended = append(m.mu.changes.ended, ending{s.holding.Load(), ErrHandover})
			}
			if !m.mu.leaving {
				next = min(next, s.stop.ended+patience)
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
