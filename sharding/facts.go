package sharding

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

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
	n, next, now := 0, time.Duration(0), m.now()
	for s := range m.slots {
		if wait := m.slots[s].keep - now; wait > 0 {
			if n == 0 || wait < next {
				next = wait
			}
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return []workqueue.Fact{fact("Slots that cannot move", "%d: handlers do not return although their contexts have ended; next try in %v", n, next.Round(time.Second))}
}

// factsOf says who holds the slots, and what moves.
func factsOf(slots []Slot) (facts []workqueue.Fact) {
	held := make(map[string]int)
	moves := make(map[string]*move)
	for _, s := range slots {
		holder := s.Holder
		if holder == "" {
			holder = "nobody"
		}
		held["Slots of "+holder]++
		if s.Next != "" {
			name := fmt.Sprintf("Move from %s to %s", holder, s.Next)
			if moves[name] == nil {
				moves[name] = new(move)
			}
			moves[name].add(s)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(held)) {
		if i == maxFacts {
			facts = append(facts, fact("Slots of others", "%d more members", len(held)-maxFacts))
			break
		}
		facts = append(facts, fact(name, "%d", held[name]))
	}
	for i, name := range slices.Sorted(maps.Keys(moves)) {
		if i == maxFacts {
			break
		}
		facts = append(facts, fact(name, "%v", moves[name]))
	}
	return facts
}

// move is what moves from one member to another.
type move struct {
	slots, handlers int
	since           time.Duration
}

func (m *move) add(s Slot) {
	m.slots++
	m.handlers += s.Handlers
	m.since = max(m.since, s.Stopping)
}

func (m *move) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d slots", m.slots)
	if m.since > 0 { // They are this member's.
		fmt.Fprintf(&b, " for %v, waiting for %d handlers", m.since.Round(100*time.Millisecond), m.handlers)
	}
	return b.String()
}
