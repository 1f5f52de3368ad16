package sharding

import (
	"cmp"
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
		m.mu.since.plan = cmp.Or(m.mu.since.plan, now)
		due = m.mu.since.plan
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
	for id := range m.mu.members {
		ids[id] = true
	}
	ids[d.self] = true
	for id := range ids {
		d.members = append(d.members, id)
	}
	slices.Sort(d.members) // All members make the same plan.
	for i, id := range d.members {
		s := m.mu.members[id]
		takes, dead := s != nil && s.isAlive(now), s != nil && s.dead(now)
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
		s := d.m.mu.members[id]
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

// nobody is the holder of a slot that has none, and the next holder of one that is not to move.
const nobody = -1

// plan decides who should hold each slot. Members are numbered; holder[s] and next[s] are the number of the member that
// holds slot s, and of the one that it is to move to, or nobody. Only members m with takes[m] get slots: the others are
// about to leave, or dead. Slots of a holder that is dead must be given as slots of nobody.
//
// The shares of the members that take slots differ by at most one, and as few slots move as that allows. Of two plans
// that are equally good it prefers the one that is under way, so the moves of a plan do not change it. It returns nil if
// no member takes slots.
func plan(holder, next []int32, takes []bool) []int32 {
	n := 0
	for _, t := range takes {
		if t {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	p := planner{holder: holder, next: next, takes: takes, held: make([]int, len(takes)), quota: make([]int, len(takes))}
	p.setQuotas(len(holder)/n, len(holder)%n)
	return p.assign()
}

type planner struct {
	holder, next []int32
	takes        []bool
	held, quota  []int
}

func (p *planner) isTaker(m int32) bool { return m != nobody && p.takes[m] }

// setQuotas gives each member its share: base slots, and one more to extra of them. A member that has more than base
// must give away one slot less if it is among these, so such members come first; then those that would have more if
// all planned moves were done, and then those with smaller numbers.
func (p *planner) setQuotas(base, extra int) {
	planned := make([]int, len(p.takes))
	for s, h := range p.holder {
		if p.isTaker(h) {
			p.held[h]++
		}
		if to := p.next[s]; p.isTaker(to) {
			planned[to]++
		} else if p.isTaker(h) {
			planned[h]++
		}
	}
	var order []int
	for m, t := range p.takes {
		if t {
			order = append(order, m)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		if p.held[a] > base != (p.held[b] > base) {
			return cmp.Compare(p.held[b], p.held[a])
		}
		return cmp.Or(cmp.Compare(planned[b], planned[a]), cmp.Compare(a, b))
	})
	for i, m := range order {
		p.quota[m] = base
		if i < extra {
			p.quota[m]++
		}
	}
}

func (p *planner) assign() []int32 {
	target := slices.Repeat([]int32{nobody}, len(p.holder))
	room := slices.Clone(p.quota)
	give := func(s int, m int32) {
		target[s] = m
		room[m]--
	}
	// A holder keeps the slots that are not to move, as many as its share, and then those that are to.
	for _, moving := range []bool{false, true} {
		for s, h := range p.holder {
			if p.isTaker(h) && room[h] > 0 && target[s] == nobody && p.isMoving(s) == moving {
				give(s, h)
			}
		}
	}
	// What is left moves, and where it was to move already if there is room.
	for s, to := range p.next {
		if target[s] == nobody && p.isTaker(to) && room[to] > 0 {
			give(s, to)
		}
	}
	m := int32(0)
	for s := range target {
		if target[s] != nobody {
			continue
		}
		for room[m] <= 0 {
			m++
		}
		give(s, m)
	}
	return target
}

// isMoving reports whether slot s is to move to another member that takes slots.
func (p *planner) isMoving(s int) bool { return p.isTaker(p.next[s]) && p.next[s] != p.holder[s] }
