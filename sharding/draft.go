package sharding

import (
	"context"
	"errors"
	"slices"
	"time"
)

// draft makes the next table from the present one.
type draft struct {
	m    *Member
	self string
	t    *table
	// members has the ids of all that hold slots, are to, or could. takes are those that should have a share, and dead
	// those whose slots may be given away.
	members     []string
	number      map[string]int32
	takes, dead []bool
	// buried: this member has deleted the record of one that still holds slots.
	buried bool
}

// draft returns the table to write now, and the version that it is to replace, or nil if there is nothing to write before
// due. The present table must be the one of that id, which is settled: if there is another one, it is time to look again.
// Changes that only one member can make, and that others wait for, do not wait their turn.
func (m *Member) draft(id string, now time.Duration) (next *table, version string, due time.Duration, c changes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c = m.applyLocked()
	t := m.mu.view.table
	if t.id != id {
		return nil, "", now, c
	}
	due = now + m.config.Lease
	// A member without a record must be in no table. Others find no record then, and take it for deleted; a late attempt to
	// create it would bring it back.
	if m.mu.view.incompatible != nil || !m.mu.self.alive || m.mu.self.version == "" {
		return nil, "", due, c
	}
	d := m.newDraftLocked(t, now)
	next, urgent := d.plan()
	if next.same(t) {
		m.mu.since.plan = 0
	} else {
		due = m.sinceLocked(&m.mu.since.plan, now)
		if !m.mu.leaving && !d.buried {
			due += m.turnLocked(now)
			if !urgent {
				due += batching
			}
		}
		if due > now {
			next = t.clone() // not yet
		} else {
			// If another member sees it differently and writes it back, that must not go on without a pause.
			m.mu.since.plan = 0
		}
	}
	d.handOverLocked(next, &c)
	if next.same(t) {
		return nil, "", due, c
	}
	return next, m.mu.view.version, due, c
}

func (m *Member) newDraftLocked(t *table, now time.Duration) *draft {
	d := &draft{m: m, self: m.mu.self.id, t: t, number: make(map[string]int32)}
	holders := make(map[string]bool)
	for _, s := range t.slots {
		holders[s.holder] = true
	}
	ids := t.named()
	for id := range m.mu.view.members {
		ids[id] = true
	}
	ids[d.self] = true
	for id := range ids {
		d.members = append(d.members, id)
	}
	slices.Sort(d.members) // All members make the same plan.
	for i, id := range d.members {
		s := m.mu.view.members[id]
		takes, dead := s != nil && s.valid && !s.gone && !s.expired(now), s != nil && s.dead(now)
		if id == d.self {
			takes, dead = !m.mu.leaving, false
		}
		d.number[id] = int32(i)
		d.takes = append(d.takes, takes && !slices.Contains(t.leaving, id))
		d.dead = append(d.dead, dead)
		d.buried = d.buried || dead && s.deleted && holders[id]
	}
	return d
}

func (d *draft) isDead(id string) bool { return id == "" || d.dead[d.number[id]] }

// takesSlots reports whether id is that of a member that should have slots.
func (d *draft) takesSlots(id string) bool { return id != "" && d.takes[d.number[id]] }

// plan returns the table as it should be, without handovers. It is urgent if slots are with the dead.
func (d *draft) plan() (next *table, urgent bool) {
	next = d.t.clone()
	if next.settling {
		// Members have followed a table that was deleted, so epochs go on from the greatest in their records.
		next.settling, next.epoch = false, max(next.epoch, d.m.mu.view.epoch+1)
	}
	next.leaving = slices.DeleteFunc(next.leaving, func(id string) bool {
		s := d.m.mu.view.members[id]
		return s != nil && s.gone
	})
	if d.m.mu.leaving && !slices.Contains(next.leaving, d.self) {
		next.leaving = append(next.leaving, d.self)
	}
	target := d.target()
	for s := range next.slots {
		slot := &next.slots[s]
		to := ""
		if target != nil {
			to = d.members[target[s]]
		}
		switch {
		case d.isDead(slot.holder):
			urgent = urgent || slot.holder != ""
			if slot.holder != to {
				next.give(s, to)
			}
		case slot.holder == to:
			slot.next = ""
		case d.lives(slot.holder):
			slot.next = to
		}
	}
	return next, urgent
}

// target returns the plan, in numbers of members.
func (d *draft) target() []int32 {
	holder, next := make([]int32, len(d.t.slots)), make([]int32, len(d.t.slots))
	for i, s := range d.t.slots {
		holder[i], next[i] = nobody, nobody
		if !d.isDead(s.holder) {
			holder[i] = d.number[s.holder]
		}
		if s.next != "" {
			next[i] = d.number[s.next]
		}
	}
	return plan(holder, next, d.takes)
}

// lives reports whether a holder can hand over its slots. Another one is probably dead: its slots are given away
// as soon as that is certain.
func (d *draft) lives(id string) bool {
	return d.takesSlots(id) || id == d.self || slices.Contains(d.t.leaving, id)
}

// handOverLocked gives away those slots of the member that are to move and whose handlers have returned. If a
// handover was tried of a slot that is to stay, it writes the member as its holder again: a newer table, which ends that attempt.
func (d *draft) handOverLocked(next *table, c *changes) {
	leavesAlone := d.m.mu.leaving && !slices.Contains(d.takes, true)
	n := 0
	for s := range next.slots {
		slot := next.slots[s]
		switch {
		case slot.holder != d.self:
		case slot.next == "" && !d.m.mu.leaving && d.m.slots[s].mayBeGiven(d.t):
			next.give(s, d.self)
		case !d.takesSlots(slot.next) && !leavesAlone:
		case d.m.releaseLocked(s, d.t, c):
			next.give(s, slot.next)
			n++
		}
	}
	if n > 0 {
		d.m.logger.Info("Handing over slots", "member", d.self, "slots", n)
	}
}

// tryLeave deletes the member's record if it has nothing to hand over any more. It reports whether the member has left.
func (m *Member) tryLeave() bool {
	m.mu.Lock()
	t, id := m.mu.view.table, m.mu.self.id
	if !m.mu.leaving || t != nil && !m.mu.view.missing && (!t.isRidOf(id)) {
		m.mu.Unlock()
		return false
	}
	m.mu.finished, m.mu.self.alive = true, false
	m.mu.Unlock()
	m.look()
	for {
		err := m.deleteSelf(m.ctx, id)
		if err == nil {
			m.logger.Info("Left", "member", id)
			close(m.left)
			return true
		}
		m.report("Cannot delete the member's record", err)
		if m.sleep(m.ctx, m.retryDelay(), nil) != nil {
			return true
		}
	}
}

// isRidOf reports whether a member that leaves has nothing to hand over, and gets nothing any more.
func (t *table) isRidOf(id string) bool {
	return slices.Contains(t.leaving, id) && !slices.ContainsFunc(t.slots, func(s tableSlot) bool { return s.holder == id || s.next == id })
}

func (m *Member) deleteSelf(ctx context.Context, id string) error {
	return m.callFrom(ctx, func(ctx context.Context) error {
		r, err := m.store.Get(ctx, m.recordName(id))
		if err == nil {
			err = m.store.Delete(ctx, r.Name, r.Version)
		}
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}
