package sharding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/operate"
)

// Stats are the numbers of a member. Those that only grow count since it joined.
type Stats struct {
	// Group and Member are the group's name and the member's id.
	Group, Member string
	// Err is what [Member.Err] returns. InTouch: the member may hold slots.
	Err     error
	InTouch bool
	// Members is how many members are alive, as far as this one knows. It counts itself.
	Members int
	// Queues is how many queues the member has, and Slots how many slots the group has.
	Queues, Slots int
	// Held is the number of slots that the member holds, and Stopping how many of them are about to move.
	Held, Stopping int
	// Lost is how many slots the member lost without a handover: it was not valid any more, or the table gave
	// them to others.
	Lost uint64
	// Kept is how often a slot was not handed over because a handler did not return.
	Kept uint64
	// LostLeases is how often the member lost its record: others took it for dead, or somebody deleted the
	// Lease.
	LostLeases uint64
}

// Stats returns the member's numbers. It takes a few microseconds.
func (m *Member) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.mu.counters
	st.Group, st.Member = m.config.Group, m.mu.self.id
	st.InTouch = m.updateValidityLocked()
	st.Err = m.errLocked()
	st.Queues, st.Slots = len(*m.queues.Load()), len(m.slots)
	for _, k := range m.mu.members {
		if k.isAlive(m.now()) {
			st.Members++
		}
	}
	st.Held, st.Stopping = m.countLocked()
	return st
}

// Below returns the queue that q hands out from, so that tools show only one of them.
func (q *queue[T]) Below() any { return q.inner }

// Facts returns what the debug page shows of the member, its group and its slots; see [operate.FactSource].
func (q *queue[T]) Facts() []operate.Fact {
	facts := q.member.facts()
	if unlisted, age := q.Unlisted(); unlisted > 0 {
		q.mu.Lock()
		err := q.mu.listError
		q.mu.Unlock()
		why := "a listing runs"
		if err != nil {
			why = "the last listing failed: " + err.Error()
		}
		facts = append(facts, fact("Slots not listed yet", "%d, for %v: their keys are still unknown here; %s",
			unlisted, age.Round(time.Second), why))
	}
	return facts
}

func fact(name, format string, args ...any) operate.Fact {
	return operate.Fact{Name: name, Value: fmt.Sprintf(format, args...)}
}

func (m *Member) facts() []operate.Fact {
	st, slots := m.Stats(), m.Slots()
	group, touch := fmt.Sprintf("%s, %d members", st.Group, st.Members), "yes"
	if !st.InTouch {
		group, touch = st.Group, fmt.Sprintf("no: %v", st.Err)
	}
	facts := []operate.Fact{
		fact("Member", "%s", st.Member), fact("Group", "%s", group), fact("In touch", "%s", touch)}
	if st.InTouch && st.Err != nil {
		facts = append(facts, fact("Problem", "%v", st.Err))
	}
	facts = append(facts, fact("Queues", "%d", st.Queues), fact("Slots held", "%d of %d", st.Held, st.Slots))
	return append(facts, factsOf(slots)...)
}

// factsOf says who holds the slots, and what moves.
func factsOf(slots []Slot) (facts []operate.Fact) {
	holders, moving := make(map[string]int), make(map[string]int)
	for _, s := range slots {
		holder := cmp.Or(s.Holder, "nobody")
		holders[holder]++
		if s.Next != "" {
			moving[fmt.Sprintf("Move from %s to %s", holder, s.Next)]++
		}
	}
	for _, holder := range slices.Sorted(maps.Keys(holders)) {
		facts = append(facts, fact("Slots of "+holder, "%d", holders[holder]))
	}
	for _, move := range slices.Sorted(maps.Keys(moving)) {
		facts = append(facts, fact(move, "%d slots", moving[move]))
	}
	return facts
}

// Slot is what [Member.Slots] shows of a slot.
type Slot struct {
	// Holder is the id of the member that holds the slot. Next is the one to which it is to move. They are
	// empty without such a member.
	Holder, Next string
	// Held reports whether this member holds the slot now. A member that is not valid holds none, even
	// if Holder names it.
	Held bool
}

// Slots returns all slots, as the last table that the member has seen says: nil before the first one.
func (m *Member) Slots() []Slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.mu.view.table
	if t == nil {
		return nil
	}
	slots := make([]Slot, len(t.slots))
	for i, s := range t.slots {
		slots[i] = Slot{Holder: s.holder, Next: s.next, Held: m.state(i) != absent}
	}
	return slots
}

// countLocked returns how many slots are not absent, and how many of these are stopping.
func (m *Member) countLocked() (held, stopped int) {
	for i := range m.states {
		if m.state(i) != absent {
			held++
		}
		if m.state(i) == stopping {
			stopped++
		}
	}
	return held, stopped
}
