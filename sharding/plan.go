package sharding

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// draft makes the next table from the present one.
type draft struct {
	m    *Member
	self string
	t    *table
	// takes has the members that should have a share, and dead those whose slots may be given away. "" is one of the dead.
	takes, dead map[string]bool
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
	next, urgent, buried := d.plan()
	if next.same(t) {
		m.mu.since.plan = 0
	} else {
		m.mu.since.plan = cmp.Or(m.mu.since.plan, now)
		due = m.mu.since.plan
		if !m.mu.leaving && !buried {
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
	d := &draft{m: m, self: m.mu.self.id, t: t, takes: make(map[string]bool), dead: map[string]bool{"": true}}
	for id, s := range m.mu.members {
		if id != d.self {
			d.takes[id], d.dead[id] = s.isAlive(now), s.dead(now)
		}
	}
	d.takes[d.self] = !m.mu.leaving
	maps.DeleteFunc(d.takes, func(id string, takes bool) bool { return !takes || slices.Contains(t.leaving, id) })
	return d
}

// plan returns the table as it should be, without handovers. It is urgent if slots are with the dead, and more so if this
// member has deleted the record of one of these.
func (d *draft) plan() (next *table, urgent, buried bool) {
	next = d.t.clone()
	if next.settling {
		// Members have followed a table that was deleted, so epochs go on from the greatest in their records.
		next.settling, next.epoch = false, max(next.epoch, d.m.mu.view.epoch+1)
	}
	next.leaving = slices.DeleteFunc(next.leaving, func(id string) bool {
		s := d.m.mu.members[id]
		return s != nil && s.gone
	})
	if d.m.mu.leaving && !slices.Contains(next.leaving, d.self) {
		next.leaving = append(next.leaving, d.self)
	}
	target := plan(d.t.slots, d.takes)
	for s := range next.slots {
		slot, to := &next.slots[s], target[s]
		switch {
		case d.dead[slot.holder]:
			if member := d.m.mu.members[slot.holder]; member != nil {
				urgent, buried = true, buried || member.deleted
			}
			if slot.holder != to {
				next.give(s, to)
			}
		case slot.holder == to:
			slot.next = ""
		case d.lives(slot.holder):
			slot.next = to
		}
	}
	return next, urgent, buried
}

// lives reports whether a holder can hand over its slots. Another one is probably dead: its slots are given away
// as soon as that is certain.
func (d *draft) lives(id string) bool {
	return d.takes[id] || id == d.self || slices.Contains(d.t.leaving, id)
}

// handOverLocked gives away those slots of the member that are to move and whose handlers have returned. If a
// handover was tried of a slot that is to stay, it writes the member as its holder again: a newer table, which ends that attempt.
func (d *draft) handOverLocked(next *table, c *changes) {
	leavesAlone := d.m.mu.leaving && len(d.takes) == 0
	n := 0
	for s := range next.slots {
		slot := next.slots[s]
		switch {
		case slot.holder != d.self:
		case slot.next == "" && !d.m.mu.leaving && d.m.slots[s].mayBeGiven(d.t):
			next.give(s, d.self)
		case !d.takes[slot.next] && !leavesAlone:
		case d.m.releaseLocked(s, d.t, c):
			next.give(s, slot.next)
			n++
		}
	}
	if n > 0 {
		d.m.logger.Info("Handing over slots", "member", d.self, "slots", n)
	}
}

// plan decides who should hold each slot. Only the members in takes get slots: the others are about to leave, or dead. If
// there is none, all slots go to "".
//
// The shares of the members that take slots differ by at most one, and as few slots move as that allows. Of two plans
// that are equally good it prefers the one that is under way, so the moves of a plan do not change it.
func plan(slots []tableSlot, takes map[string]bool) (target []string) {
	target = make([]string, len(slots))
	if len(takes) == 0 {
		return target
	}
	room := shares(slots, takes)
	give := func(s int, to string) {
		target[s] = to
		room[to]--
	}
	// A holder keeps the slots that are not to move, as many as its share, and then those that are to.
	for _, moving := range []bool{false, true} {
		for s, slot := range slots {
			if room[slot.holder] > 0 && target[s] == "" && moving == (takes[slot.next] && slot.next != slot.holder) {
				give(s, slot.holder)
			}
		}
	}
	// What is left moves, and where it was to move already if there is room.
	for s, slot := range slots {
		if target[s] == "" && room[slot.next] > 0 {
			give(s, slot.next)
		}
	}
	members := slices.Sorted(maps.Keys(takes))
	for s := range target {
		if target[s] != "" {
			continue
		}
		for room[members[0]] <= 0 {
			members = members[1:]
		}
		give(s, members[0])
	}
	return target
}

// shares returns how many slots each member should hold: the base, and some of them one more. A member that has more than the
// base must give away one slot less if it is among these, so such members come first; then those that would have more if
// all planned moves were done, and then by their ids.
func shares(slots []tableSlot, takes map[string]bool) map[string]int {
	held, planned := make(map[string]int), make(map[string]int)
	for _, slot := range slots {
		held[slot.holder]++
		if takes[slot.next] {
			planned[slot.next]++
		} else {
			planned[slot.holder]++
		}
	}
	base, extra := len(slots)/len(takes), len(slots)%len(takes)
	order := slices.SortedFunc(maps.Keys(takes), func(a, b string) int {
		if held[a] > base != (held[b] > base) {
			return cmp.Compare(held[b], held[a])
		}
		return cmp.Or(cmp.Compare(planned[b], planned[a]), cmp.Compare(a, b))
	})
	shares := make(map[string]int, len(order))
	for i, id := range order {
		shares[id] = base
		if i < extra {
			shares[id]++
		}
	}
	return shares
}
