package sharding

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

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
	st := m.mu.stats
	st.Group, st.Member, st.Err = m.config.Group, m.mu.self.id, err
	now := m.now()
	for _, s := range m.mu.members {
		if s.isAlive(now) {
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

// maxFacts is how many members, and how many moves, Facts names.
const maxFacts = 10

// Facts returns what the debug page shows of the member, its group and its slots; see [workqueue.Inspector].
func (q *queue[T]) Facts() []workqueue.Fact {
	facts := q.member.facts()
	q.mu.Lock()
	unlisted := len(q.mu.unlisted)
	q.mu.Unlock()
	if unlisted > 0 {
		facts = append(facts, fact("Slots not listed yet", "%d: their keys are still unknown here", unlisted))
	}
	return append(facts, fact("Keys of others", "%d dropped", q.KeysOfOthers()))
}

func fact(name, format string, args ...any) workqueue.Fact {
	return workqueue.Fact{Name: name, Value: fmt.Sprintf(format, args...)}
}

func (m *Member) facts() []workqueue.Fact {
	st := m.Stats()
	facts := []workqueue.Fact{
		fact("Member", "%s", st.Member),
		fact("Group", "%s, %d members", st.Group, st.Members),
	}
	if st.Err == nil {
		left := time.Duration(m.validUntil.Load()) - m.now()
		facts = append(facts, fact("In touch", "yes, and for %v more if it cannot renew its lease", left.Round(100*time.Millisecond)))
	} else {
		facts = append(facts, fact("In touch", "no: %v", st.Err))
	}
	facts = append(facts, fact("Slots held", "%d of %d", st.Held, len(m.slots)))
	facts = append(facts, m.kept()...)
	return append(facts, factsOf(m.Slots())...)
}

// kept says which slots cannot move.
func (m *Member) kept() []workqueue.Fact {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, next, now := 0, time.Duration(math.MaxInt64), m.now()
	for s := range m.slots {
		if wait := m.slots[s].keep - now; wait > 0 {
			n, next = n+1, min(next, wait)
		}
	}
	if n == 0 {
		return nil
	}
	return []workqueue.Fact{fact("Slots that cannot move", "%d: handlers do not return although their contexts have ended; next try in %v", n, next.Round(time.Second))}
}

// factsOf says who holds the slots, and what moves.
func factsOf(slots []Slot) (facts []workqueue.Fact) {
	held, moves := make(map[string]int), make(map[string]move)
	for _, s := range slots {
		holder := cmp.Or(s.Holder, "nobody")
		held["Slots of "+holder]++
		if s.Next != "" {
			name := fmt.Sprintf("Move from %s to %s", holder, s.Next)
			m := moves[name]
			moves[name] = move{m.slots + 1, m.handlers + s.Handlers, max(m.since, s.Stopping)}
		}
	}
	for i, name := range slices.Sorted(maps.Keys(held)) {
		if i == maxFacts {
			facts = append(facts, fact("Slots of others", "%d more members", len(held)-maxFacts))
			break
		}
		facts = append(facts, fact(name, "%d", held[name]))
	}
	names := slices.Sorted(maps.Keys(moves))
	for _, name := range names[:min(len(names), maxFacts)] {
		facts = append(facts, fact(name, "%v", moves[name]))
	}
	return facts
}

// move is the fact what moves from one member to another.
type move struct {
	slots, handlers int
	since           time.Duration
}

func (m move) String() string {
	if m.since == 0 { // They are another member's.
		return fmt.Sprintf("%d slots", m.slots)
	}
	return fmt.Sprintf("%d slots for %v, waiting for %d handlers", m.slots, m.since.Round(100*time.Millisecond), m.handlers)
}
