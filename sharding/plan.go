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

// "Who waits how long for what" in docs/project/sharding.md has all these times, and why.
const (
	batching  = 200 * time.Millisecond // a plan, for more members that come or go
	turn      = 150 * time.Millisecond // a member, for the one before it to write the plan
	maxTurns  = 4
	spacing   = 200 * time.Millisecond // a member, for each one that is to hand over slots before it
	stagger   = 20 * time.Millisecond  // at most: members that have tried to write the table at the same time
	probation = time.Second            // a new member, for slots, if there are others
	// The kubelet waits up to five minutes before it starts a container again, so deaths count for longer.
	remembersDeaths = 30 * time.Minute
)

// planner makes the next table from the present one, t.
type planner struct {
	m    *Member
	self string
	t    *table
	// takers are the members that should have a share, and dead those whose slots may be given away. A slot
	// without a holder has "", which is one of the dead.
	takers, dead map[string]bool
	// hashes are those of the table and of all takers.
	hashes map[string]string
	// nextTaker is when there may be one more taker.
	nextTaker time.Duration
}

// nextTable returns the table to write now, and the version that it must replace, or nil if there is nothing
// to write before due. The caller has found that the present table has that id, and is settled.
//
// A new plan may have to wait: for what this member must know first (takesNothingUntilLocked), and for others
// that would write the same (plan). Handovers of this member's own slots never wait: only it can write them.
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
		if m.mu.barred == untilWritten { // This write shows whether it can write the table now.
			return t.clone(), view.version, due
		}
		return nil, "", due
	}
	p := m.newPlannerLocked(t, now)
	next, wait := p.plan(now)
	due = min(due, p.nextTaker)
	isPending := false // There is something to write that must wait.
	if !next.same(t) {
		if until := m.takesNothingUntilLocked(now); until > now {
			isPending, due, next = true, min(due, until), t.clone()
			p.nameLeaving(next)
		}
	}
	since := &m.mu.since.unplanned
	switch {
	case isPending && next.same(t):
		// Only its turn begins anew, not the batching: without working watches this comes again and again.
		*since = max(cmp.Or(*since, now), now-batching)
	case next.same(t):
		*since = 0
	case cmp.Or(*since, now)+wait > now:
		*since = cmp.Or(*since, now)
		due, next = min(due, *since+wait), t.clone()
	default: // Now. The next plan waits again: two members that disagree must not overwrite each other at once.
		*since = 0
	}
	p.handOverLocked(next)
	if !next.same(t) {
		return next, view.version, due
	}
	for s, slot := range t.slots { // A slot that is kept for now is tried again.
		isPending = isPending || slot.holder == p.self && slot.next != "" && m.slots[s].keepUntil > now
	}
	if !isPending && *since == 0 {
		m.mu.since.refused = 0
	}
	return nil, "", due
}

func (m *Member) newPlannerLocked(t *table, now time.Duration) *planner {
	p := &planner{m: m, self: m.mu.self.id, t: t, nextTaker: now + m.config.Lease}
	p.takers, p.dead = make(map[string]bool), map[string]bool{"": true}
	for id, s := range m.mu.members {
		if id != p.self {
			fits := len(contradictions(t.hashes, s.data.Hashes)) == 0
			p.takers[id], p.dead[id] = s.isAlive(now) && s.data.Queues > 0 && fits, s.life(now) == dead
		}
	}
	p.takers[p.self] = !m.mu.leaving && m.usableQueuesLocked() > 0
	takesNone := func(id string, takes bool) bool { return !takes || slices.Contains(t.leaving, id) }
	maps.DeleteFunc(p.takers, takesNone)
	for id, until := range p.newcomers() {
		if until > now {
			delete(p.takers, id)
			p.nextTaker = min(p.nextTaker, until)
		}
	}
	p.agreeOnHashes()
	return p
}

// agreeOnHashes collects the hashes of the table and the takers. A taker that contradicts an earlier one gets
// no slots.
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

// plan returns the table as it should be, without handovers, and how long this member waits before it writes
// that: others would write the same.
func (p *planner) plan(now time.Duration) (next *table, wait time.Duration) {
	next = p.t.clone()
	if next.settling {
		// Epochs go on from the greatest that members have seen, perhaps in a table that was deleted. Slots
		// whose handlers still run stay where they are.
		next.settling, next.replaces, next.epoch = false, false, max(next.epoch, p.m.mu.view.epoch+1)
		// Members name the new id in their records before they hold slots by it. With the old one, somebody
		// who puts the empty table back could have it filled a second time.
		next.id = p.m.config.newID("table")
		for s, id := range p.m.mu.view.claims {
			if s < len(next.slots) && !p.dead[id] {
				next.give(s, id)
			}
		}
	}
	// Until all know that a member is dead, some would give it slots again.
	next.leaving = slices.DeleteFunc(next.leaving, func(id string) bool { return p.dead[id] })
	p.nameLeaving(next)
	next.hashes = p.hashes
	next.lease = max(next.lease, p.m.config.Lease)
	for _, s := range p.m.mu.members {
		next.lease = max(next.lease, time.Duration(s.data.Lease))
	}
	target := assign(next.slots, p.takers)
	// urgent: slots have no holder. isMine: this member has marked the record of one of the dead, so the others
	// wait for it.
	urgent, isMine, died := false, false, make(map[string]bool)
	for s := range next.slots {
		slot, to := &next.slots[s], target[s]
		switch {
		case p.dead[slot.holder]:
			left := slot.holder == "" || slices.Contains(p.t.leaving, slot.holder)
			if member := p.m.mu.members[slot.holder]; member != nil {
				urgent, isMine, left = true, isMine || member.markedByMe, left || member.data.Left
			}
			if slot.holder != to {
				if !left {
					died[nameOf(slot.holder)] = true
				}
				next.give(s, to)
			}
		case slot.holder == to:
			slot.next = ""
		case p.takers[slot.holder], slot.holder == p.self, slices.Contains(p.t.leaving, slot.holder):
			slot.next = to
		default: // It is silent, and probably dead: its slots are given away as soon as that is certain.
		}
	}
	next.countDeaths(died, p.m.config.Clock.Now())
	if !p.m.mu.leaving && !isMine {
		wait = p.m.turnLocked(now)
		if !urgent {
			wait += batching
		}
	}
	return next, wait
}

// nameLeaving makes next say that this member leaves, if it does: then others give it no slots.
func (p *planner) nameLeaving(next *table) {
	if p.m.mu.leaving && !slices.Contains(next.leaving, p.self) {
		next.leaving = append(next.leaving, p.self)
	}
}

// newcomers returns until when each taker without slots must wait for its first ones; see the table of waits
// in docs/project/sharding.md. It waits longer if an earlier life of its process is silent, or has died
// several times by the table. Members of one name that live at the same time are not one process. If all
// takers are newcomers, nobody waits, except for holders that a backup does not show.
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

// nameOf returns the beginning of a member's id, which stays the same when its process starts anew.
func nameOf(id string) string {
	if i := strings.LastIndexByte(id, '-'); i >= 0 {
		return id[:i]
	}
	return id
}

// handOverLocked gives away those slots of this member that are to move and whose handlers have returned. If
// it has tried to hand over a slot that is to stay now, it writes itself as the holder again, which ends that
// attempt.
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

// wrote notes how a write of table t has ended. If the server has refused a handover, the member keeps these
// slots for a lease. If that stays uncertain for a lease, it gives up its record, because nobody can hold
// these slots while it lives.
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
		case !m.mu.leaving: // A leaving member would release the slot at once, and try again without a pause.
			s.handover, s.keepUntil = handover{}, now+m.config.Lease
		}
	}
	if uncertain && !m.mu.leaving && m.validLocked() && now-m.mu.since.refused >= m.config.Lease {
		m.barLocked(untilWritten, "Cannot write the table for a lease. Giving up all slots", err)
	}
}

// assign decides who should hold each slot. Only takers get slots: other members leave, are silent or dead,
// or have just come. Without takers, all slots go to "".
//
// The shares of takers differ by at most one, and as few slots move as that allows. Moves that are under way
// are preferred, so that a plan stays the same while it is carried out.
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
	// Up to its share, a holder keeps first the slots that are not about to move, then those that are.
	for _, moving := range []bool{false, true} {
		for s, slot := range slots {
			if room[slot.holder] > 0 && target[s] == "" && moving == (takers[slot.next] && slot.next != slot.holder) {
				give(s, slot.holder)
			}
		}
	}
	// The other slots move: where they were about to move already, if there is room, or else to anybody.
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

// shares returns how many slots each taker should hold: base, and extra of them one more. Those that hold
// more than base are the first to get one more, because then one slot less moves. Next come those that would
// hold most after all planned moves.
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
