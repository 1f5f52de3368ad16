package sharding

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// batching is how long a plan waits for more members to come or go, and turn is how long each member lets
	// the one before it write the plan.
	batching = 200 * time.Millisecond
	turn     = 150 * time.Millisecond
	maxTurns = 4
	// spacing is how long a member waits for each one that is to hand over slots before it.
	spacing = 200 * time.Millisecond
	// stagger keeps members apart that write the table at the same time.
	stagger = 20 * time.Millisecond
	// probation is how long a member must live before it gets slots, if there are others.
	probation = time.Second
	// remembersDeaths is for how long the deaths of a process are remembered. (The kubelet waits up to five
	// minutes before it starts a container again.)
	remembersDeaths = 30 * time.Minute
)

// planner makes the next table from the present one.
type planner struct {
	m    *Member
	self string
	t    *table
	// takers has the members that should have a share, and dead those whose slots may be given away. "" is
	// one of the dead.
	takers, dead map[string]bool
	// hashes are those of the table and of all in takers.
	hashes map[string]string
	// nextTaker is when takers may have one more.
	nextTaker time.Duration
}

// nextTable returns the table to write now, and the version that it is to replace, or nil if there is nothing
// to write before due. The present table must be the one of that id, which may be filled: if there is another
// one by now, it is time to look again. Changes that only one member can make, and that others wait for, do
// not wait their turn.
func (m *Member) nextTable(id string, now time.Duration) (next *table, version string, due time.Duration) {
	m.mu.Lock()
	defer m.unlock()
	m.applyLocked()
	t, view := m.mu.view.table, &m.mu.view
	due = now + m.config.Lease
	switch {
	case t.id != id:
		return nil, "", now
	case m.isOutdatedLocked(t, math.MaxInt64), // until it is read again
		view.incompatible != nil, view.broken != nil, !m.mu.self.alive:
		return nil, "", due
	case m.mu.self.version == "":
		// A member without a record must be in no table. Others find no record then, and take it for deleted;
		// a late attempt to create it would bring it back.
		if m.mu.barred == untilWritten { // Can it write the table now?
			return t.clone(), view.version, due
		}
		return nil, "", due
	}
	p := m.newPlannerLocked(t, now)
	next, wait := p.plan(now)
	due = min(due, p.nextTaker)
	waits := false // with something that it has to write
	if !next.same(t) {
		if until := m.takesNothingUntilLocked(now); until > now {
			waits, due, next = true, min(due, until), t.clone()
			p.nameLeaving(next)
		}
	}
	since := &m.mu.since.unplanned
	switch {
	case waits && next.same(t): // Where watches do not work, that comes again and again. Only the turn begins anew.
		*since = max(cmp.Or(*since, now), now-batching)
	case next.same(t):
		*since = 0
	case cmp.Or(*since, now)+wait > now:
		*since = cmp.Or(*since, now)
		due, next = min(due, *since+wait), t.clone() // not yet
	default: // The next plan waits again: two members that disagree must not overwrite each other without a pause.
		*since = 0
	}
	p.handOverLocked(next)
	if next.same(t) {
		for s, slot := range t.slots { // A slot that is kept for now is tried again.
			waits = waits || slot.holder == p.self && slot.next != "" && m.slots[s].keepUntil > now
		}
		if !waits && *since == 0 {
			m.mu.since.refused = 0
		}
		return nil, "", due
	}
	return next, view.version, due
}

func (m *Member) newPlannerLocked(t *table, now time.Duration) *planner {
	p := &planner{m: m, self: m.mu.self.id, t: t, nextTaker: now + m.config.Lease, takers: make(map[string]bool), dead: map[string]bool{"": true}}
	for id, s := range m.mu.members {
		if id != p.self {
			fits := len(contradictions(t.hashes, s.data.Hashes)) == 0
			p.takers[id], p.dead[id] = s.isAlive(now) && s.data.Queues > 0 && fits, s.life(now) == dead
		}
	}
	p.takers[p.self] = !m.mu.leaving && m.usableQueuesLocked() > 0
	maps.DeleteFunc(p.takers, func(id string, takes bool) bool { return !takes || slices.Contains(t.leaving, id) })
	for id, until := range p.newcomers() {
		if until > now {
			delete(p.takers, id)
			p.nextTaker = min(p.nextTaker, until)
		}
	}
	p.agreeOnHashes()
	return p
}

// agreeOnHashes makes the hashes of all that take slots part of the table, and leaves out the members that
// differ from one before them.
func (p *planner) agreeOnHashes() {
	p.hashes = maps.Collect(maps.All(p.t.hashes))
	for _, id := range append([]string{p.self}, slices.Sorted(maps.Keys(p.takers))...) {
		hashes := p.m.mu.hashes
		if id != p.self {
			hashes = p.m.mu.members[id].data.Hashes
		}
		switch {
		case !p.takers[id]:
		case len(contradictions(p.hashes, hashes)) > 0:
			delete(p.takers, id)
		default:
			maps.Copy(p.hashes, hashes)
		}
	}
}

// plan returns the table as it should be, without handovers, and how long to wait before it is written.
func (p *planner) plan(now time.Duration) (next *table, wait time.Duration) {
	next = p.t.clone()
	if next.settling {
		// Members may have followed a table that was deleted, so epochs go on from the greatest in their
		// records. Slots whose handlers still run stay where they are.
		next.settling, next.replaces, next.epoch = false, false, max(next.epoch, p.m.mu.view.epoch+1)
		// With another id, so that members name it in their records before they hold slots by it. Otherwise
		// somebody who puts the empty table back could have it filled a second time.
		next.id = p.m.config.newID("table")
		for s, id := range p.m.mu.view.claims {
			if s < len(next.slots) && !p.dead[id] {
				next.give(s, id)
			}
		}
	}
	// A member that does not know yet that one has left would give it slots again.
	next.leaving = slices.DeleteFunc(next.leaving, func(id string) bool { return p.dead[id] })
	p.nameLeaving(next)
	next.hashes = p.hashes
	next.lease = max(next.lease, p.m.config.Lease)
	for _, s := range p.m.mu.members {
		next.lease = max(next.lease, time.Duration(s.data.Lease))
	}
	target := assign(next.slots, p.takers)
	urgent, mine, died := false, false, make(map[string]bool)
	for s := range next.slots {
		slot, to := &next.slots[s], target[s]
		switch {
		case p.dead[slot.holder]:
			left := slot.holder == "" || slices.Contains(p.t.leaving, slot.holder)
			if member := p.m.mu.members[slot.holder]; member != nil {
				urgent, mine, left = true, mine || member.markedByMe, left || member.data.Left
			}
			if slot.holder != to {
				if !left {
					died[nameOf(slot.holder)] = true
				}
				next.give(s, to)
			}
		case slot.holder == to:
			slot.next = ""
		case p.canHandOver(slot.holder):
			slot.next = to
		}
	}
	next.countDeaths(died, p.m.config.Clock.Now())
	if !p.m.mu.leaving && !mine {
		wait = p.m.turnLocked(now)
		if !urgent {
			wait += batching
		}
	}
	return next, wait
}

// nameLeaving makes next say that this member leaves, if it does. Otherwise others would give it the slots
// again that it hands over.
func (p *planner) nameLeaving(next *table) {
	if p.m.mu.leaving && !slices.Contains(next.leaving, p.self) {
		next.leaving = append(next.leaving, p.self)
	}
}

// newcomers returns until when members that have just come get no slots; see the table of waits in
// docs/project/sharding.md. The predecessor of such a member is still there, and silent, or the table says
// that it has died. Members of one name that live at the same time are not one process. If all members are
// newcomers, nobody waits, except for holders that a backup does not show.
func (p *planner) newcomers() map[string]time.Duration {
	until := make(map[string]time.Duration)
	holders := make(map[string]bool)
	for _, s := range p.t.slots {
		holders[s.holder], holders[s.next] = true, true
	}
	for id := range p.takers {
		s := p.m.mu.members[id]
		if s == nil || holders[id] {
			continue
		}
		wait := probation
		if x := p.t.deaths[nameOf(id)]; x.count(p.m.config.Clock.Now()) > 1 {
			wait = min(probation<<(2*min(x.N-1, 10)), time.Duration(s.data.Lease))
		}
		var predecessor time.Duration
		for other, o := range p.m.mu.members {
			switch {
			case nameOf(other) != nameOf(id) || other == id || o.isGone || o.data.Dead:
			case o.leaseFrom < s.known+probation:
				predecessor = max(predecessor, o.leaseFrom+time.Duration(o.data.Lease))
			default:
				wait = probation
			}
		}
		until[id] = max(s.known+wait, predecessor)
	}
	delete(holders, "")
	if len(until) == len(p.takers) {
		if p.t.settling || len(holders) > 0 || p.m.now()-p.m.mu.unanswered > p.m.mu.view.lease {
			return nil
		}
		for id := range until {
			until[id] = p.m.mu.members[id].known + p.m.mu.view.lease/3
		}
	}
	return until
}

// nameOf returns what a member's id begins with, which is the same after its process has started anew.
func nameOf(id string) string {
	if i := strings.LastIndexByte(id, '-'); i >= 0 {
		return id[:i]
	}
	return id
}

// canHandOver reports whether a holder can hand over its slots. A holder that does not live is probably dead:
// its slots are given away as soon as that is certain.
func (p *planner) canHandOver(id string) bool {
	return p.takers[id] || id == p.self || slices.Contains(p.t.leaving, id)
}

// handOverLocked gives away those slots of the member that are to move and whose handlers have returned. If a
// handover was tried of a slot that is to stay, it writes the member as its holder again: a newer table,
// which ends that attempt.
func (p *planner) handOverLocked(next *table) {
	leavesAlone := p.m.mu.leaving && len(p.takers) == 0
	n := 0
	for s := range next.slots {
		slot := next.slots[s]
		switch {
		case slot.holder != p.self:
		case slot.next == "" && !p.m.mu.leaving && p.m.slots[s].handover.mayStillSucceed(p.t):
			next.give(s, p.self)
		case !p.takers[slot.next] && !leavesAlone:
		case p.m.releaseLocked(s, p.t):
			next.give(s, slot.next)
			n++
		}
	}
	if n > 0 {
		p.m.logger.Info("Handing over slots", "member", p.self, "slots", n)
	}
}

// wrote notes what has become of a write of the table. If the server has refused a handover for certain, the
// member keeps these slots for a lease. If that is uncertain for a lease, the member gives up its record,
// because nobody can hold these slots while it lives.
func (m *Member) wrote(t *table, err error) {
	m.mu.Lock()
	defer m.unlock()
	now := m.now()
	switch {
	case err == nil:
		m.mu.since.refused = 0
		m.admitLocked(untilWritten)
		return
	case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound), errors.Is(err, ErrExists):
		return
	}
	m.mu.since.refused, m.mu.refusal = cmp.Or(m.mu.since.refused, now), err
	uncertain := false
	for i := range m.slots {
		s := &m.slots[i]
		if s.handover.table != t.id || t.slots[i].epoch != t.epoch {
			continue
		}
		switch {
		case !errors.Is(err, ErrRefused) || s.handover.unsure:
			s.handover.unsure, uncertain = true, true
		case !m.mu.leaving: // One that leaves would release the slot again at once, and try again without a pause.
			s.handover, s.keepUntil = handover{}, now+m.config.Lease
		}
	}
	if uncertain && !m.mu.leaving && m.validLocked() && now-m.mu.since.refused >= m.config.Lease {
		m.barLocked(untilWritten, "Cannot write the table for a lease. Giving up all slots", err)
	}
}

// assign decides who should hold each slot. Only the members in takers get slots: the others leave, are
// silent or dead, or have just come. If there is none, all slots go to "".
//
// The shares of the members that take slots differ by at most one, and as few slots move as that allows. Of
// two plans that are equally good it prefers the one that is under way, so the moves of a plan do not change
// it.
func assign(slots []tableSlot, takers map[string]bool) (target []string) {
	target = make([]string, len(slots))
	if len(takers) == 0 {
		return target
	}
	room := shares(slots, takers)
	give := func(s int, to string) {
		target[s] = to
		room[to]--
	}
	// A holder keeps the slots that are not to move, as many as its share, and then those that are to.
	for _, moving := range []bool{false, true} {
		for s, slot := range slots {
			if room[slot.holder] > 0 && target[s] == "" && moving == (takers[slot.next] && slot.next != slot.holder) {
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
	members := slices.Sorted(maps.Keys(takers))
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

// shares returns how many slots each member should hold: the base, and some of them one more. A member that
// has more than the base must give away one slot less if it is among these, so such members come first; then
// those that would have more if all planned moves were done, and then by their ids.
func shares(slots []tableSlot, takers map[string]bool) map[string]int {
	held, planned := make(map[string]int), make(map[string]int)
	for _, slot := range slots {
		held[slot.holder]++
		if takers[slot.next] {
			planned[slot.next]++
		} else {
			planned[slot.holder]++
		}
	}
	base, extra := len(slots)/len(takers), len(slots)%len(takers)
	order := slices.SortedFunc(maps.Keys(takers), func(a, b string) int {
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
