package sharding

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// The pauses of members. Writes of the table at the same time would conflict, so members take turns.
const (
	batchPause    = 200 * time.Millisecond // before a plan is written: others may come or go
	turnPause     = 150 * time.Millisecond // for each living member with a smaller id: it may do the same first
	maxTurns      = 4                      // no member waits for more turns
	handoverPause = 200 * time.Millisecond // for each member that hands over slots before this one
	conflictPause = 20 * time.Millisecond  // at most, after a conflict
	probation     = time.Second            // before a new member gets slots, if there are others
	shortPause    = 250 * time.Millisecond // before another look, after a failed call or while others act first
)

// planner makes the next table from the present one, t, in this order:
//
//  1. newPlannerLocked finds the takers, and the members whose slots may be given away.
//  2. plan gives those slots to takers, and names the takers to which slots of living members are to move.
//  3. allowed drops that plan for now while the member waits: others may come or go, or write the same first.
//  4. handOver gives away slots of this member that are to move and whose handlers have returned.
//
// Its methods need the member's lock.
type planner struct {
	m      *Member
	selfID string
	t      *table
	now    time.Duration
	takers map[string]bool // the members that should have a share of the slots
	// givable are the members whose slots may be given away: the dead, and "" for slots without a holder.
	givable map[string]bool
	due     time.Duration // when to plan again if nothing is written now
}

// nextTable returns the table to write now, and the version that it must replace, or nil if there is nothing
// to write before due. The caller has seen that the table of that id may be filled, or has been.
func (m *Member) nextTable(tableID string, now time.Duration) (next *table, version string, due time.Duration) {
	m.update(func() { next, version, due = m.nextTableLocked(tableID, now) })
	return next, version, due
}

func (m *Member) nextTableLocked(tableID string, now time.Duration) (*table, string, time.Duration) {
	t, view := m.mu.view.table, &m.mu.view
	switch {
	case t.id != tableID:
		return nil, "", now
	case view.unusable != nil, !m.mu.self.alive, m.mu.self.version == "":
		// A member without a record must be in no table: others would look for its record, find none, and
		// take it for dead. A late attempt to create the record would then bring the member back.
		return nil, "", now + m.config.Lease
	}
	p := m.newPlannerLocked(t, now)
	next := p.allowed(p.plan())
	p.handOver(next) // This never waits for others: only the holder can write it.
	if !next.equals(t) {
		return next, view.version, p.due
	}
	if !m.mu.planWaits.isSo && !p.keepsSlots() { // There is nothing to write.
		m.mu.health.unwritable.end()
	}
	return nil, "", p.due
}

func (m *Member) newPlannerLocked(t *table, now time.Duration) *planner {
	p := &planner{m: m, selfID: m.mu.self.id, t: t, now: now, due: now + m.config.Lease}
	p.takers, p.givable = make(map[string]bool), map[string]bool{"": true}
	for id, k := range m.mu.members {
		isOther := id != p.selfID
		p.givable[id] = isOther && k.liveness(now) == dead
		if isOther && k.takesSlots(t, now) {
			p.takers[id] = true
		}
	}
	hasQueues := m.queuesIfAllLocked() > 0 && m.mu.members[p.selfID] != nil // It has seen its own record.
	if m.mu.phase == staying && hasQueues && !slices.Contains(t.leaving, p.selfID) {
		p.takers[p.selfID] = true
	}
	for id, until := range p.firstSlotTimes() {
		if until > now {
			delete(p.takers, id)
			p.due = min(p.due, until)
		}
	}
	return p
}

// firstSlotTimes returns when each newcomer, a taker that the table does not name, may get its first slots.
// If all takers are newcomers they need not wait.
func (p *planner) firstSlotTimes() map[string]time.Duration {
	times := make(map[string]time.Duration)
	for id := range p.takers {
		if !p.t.names(id) {
			times[id] = p.m.mu.members[id].firstSeen + probation
		}
	}
	if len(times) == len(p.takers) {
		return nil
	}
	return times
}

// plan returns the table as it should be, but for the handovers.
func (p *planner) plan() *table {
	next := p.t.clone()
	if next.settling { // It is filled now.
		next.settling, next.replaces, next.epoch = false, false, max(next.epoch, p.m.mu.view.epochEver+1)
	}
	// A member stays in leaving until it is dead: otherwise others would give it slots again.
	next.leaving = slices.DeleteFunc(next.leaving, func(id string) bool { return p.givable[id] })
	p.nameLeaving(next)
	if len(p.m.mu.hashes) > 0 { // The table may lack some. It contradicts none: see checkHashesLocked.
		next.hashes = maps.Collect(maps.All(p.t.hashes))
		maps.Copy(next.hashes, p.m.mu.hashes)
	}
	p.applyTargets(next)
	return next
}

// nameLeaving adds this member to next.leaving if it leaves: then others give it no slots.
func (p *planner) nameLeaving(next *table) {
	if p.m.mu.phase >= leaving && !slices.Contains(next.leaving, p.selfID) {
		next.leaving = append(next.leaving, p.selfID)
	}
}

// applyTargets gives slots of the dead and of nobody to their targets, and names those of the others.
func (p *planner) applyTargets(next *table) {
	for i, target := range assign(next.slots, p.takers) {
		slot := &next.slots[i]
		switch {
		case slot.holder == "" && target == "": // Nobody takes it.
		case p.givable[slot.holder]:
			next.give(i, target)
		case slot.holder == target:
			slot.next = ""
		case p.takers[slot.holder], slot.holder == p.selfID, slices.Contains(p.t.leaving, slot.holder):
			slot.next = target
		default: // The holder is neither a taker nor dead, such as an overdue one. It keeps the slot for now.
		}
	}
}

// allowed returns the planned table if this member may write it now, otherwise a copy of the present one, in
// which only this member's leaving may be new.
func (p *planner) allowed(planned *table) *table {
	waits := &p.m.mu.planWaits
	if planned.equals(p.t) {
		waits.end()
		return planned
	}
	waits.begin(p.now)
	if at := waits.since + p.waitBeforeWrite(); at > p.now {
		p.due = min(p.due, at)
		present := p.t.clone()
		p.nameLeaving(present)
		return present
	}
	waits.end() // The next plan waits again: two that disagree must not overwrite each other at once.
	return planned
}

// waitBeforeWrite returns how long a plan waits, so that members that would write the same do not conflict.
func (p *planner) waitBeforeWrite() time.Duration {
	hasDead, handsOver := false, false
	for i, slot := range p.t.slots {
		if slot.holder != "" && p.givable[slot.holder] {
			hasDead = true
		}
		handsOver = handsOver || slot.holder == p.selfID && p.takers[slot.next] && p.m.mayReleaseLocked(i)
	}
	switch {
	case p.m.mu.phase >= leaving:
		return 0
	case hasDead && handsOver: // Otherwise a row of handovers keeps the dead waiting.
		return 0
	case hasDead:
		return p.m.turnWaitLocked(p.now)
	}
	return p.m.turnWaitLocked(p.now) + batchPause
}

// keepsSlots reports whether this member keeps slots for now although they are to move.
func (p *planner) keepsSlots() bool {
	for i, slot := range p.t.slots {
		if slot.holder == p.selfID && slot.next != "" && p.m.slots[i].keepUntil > p.now {
			return true
		}
	}
	return false
}

// assign decides who should hold each slot: one of the takers or, if there are none, "".
//
// The shares of takers differ by at most one, and as few slots move as that allows. Moves that are under way
// are preferred, so that a plan stays the same while it is carried out.
func assign(slots []tableSlot, takers map[string]bool) (target []string) {
	target = make([]string, len(slots))
	if len(takers) == 0 {
		return target
	}
	room := shares(slots, takers)
	give := func(i int, to string) {
		target[i] = to
		room[to]--
	}
	// Each holder keeps slots up to its share: first those that are not about to move, then those that are.
	for _, moving := range []bool{false, true} {
		for i, slot := range slots {
			isMoving := takers[slot.next] && slot.next != slot.holder
			if isMoving == moving && room[slot.holder] > 0 {
				give(i, slot.holder)
			}
		}
	}
	// The other slots move: if there is room, where they were about to move already, and else to anybody.
	for i, slot := range slots {
		if target[i] == "" && room[slot.next] > 0 {
			give(i, slot.next)
		}
	}
	i := 0
	for _, id := range slices.Sorted(maps.Keys(takers)) {
		for ; room[id] > 0; i++ {
			if target[i] == "" {
				give(i, id)
			}
		}
	}
	return target
}

// shares returns how many slots each taker should hold: base, and extra of them one more. First come those
// that hold more than base, because then one slot less moves; then, in each of the two groups, those that
// would hold most after all planned moves.
func shares(slots []tableSlot, takers map[string]bool) (share map[string]int) {
	holds, afterMoves := make(map[string]int), make(map[string]int)
	for _, slot := range slots {
		holds[slot.holder]++
		if takers[slot.next] {
			afterMoves[slot.next]++
		} else {
			afterMoves[slot.holder]++
		}
	}
	base, extra := len(slots)/len(takers), len(slots)%len(takers)
	order := slices.SortedFunc(maps.Keys(takers), func(a, b string) int {
		if holds[a] > base != (holds[b] > base) {
			return cmp.Compare(holds[b], holds[a])
		}
		return cmp.Or(cmp.Compare(afterMoves[b], afterMoves[a]), cmp.Compare(a, b))
	})
	share = make(map[string]int, len(order))
	for i, id := range order {
		share[id] = base
		if i < extra {
			share[id]++
		}
	}
	return share
}
