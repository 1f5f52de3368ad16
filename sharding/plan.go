package sharding

import (
	"cmp"
	"slices"
)

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
