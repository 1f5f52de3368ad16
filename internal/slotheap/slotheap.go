// Package slotheap keeps slots of a [keytable.Table] in a heap: the least is on top, each can be taken out.
package slotheap

import (
	"iter"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Entry is a slot and its place in the order: by Rank, and by Tie where ranks are equal.
type Entry struct {
	Rank int64
	// Tie is usually the next number of a counter, and may wrap around: see before.
	Tie  uint32
	Slot keytable.Slot
}

func (e Entry) before(f Entry) bool {
	if e.Rank != f.Rank {
		return e.Rank < f.Rank
	}
	return int32(e.Tie-f.Tie) < 0
}

// Heap has slots, each at most once.
//
// A node has four children, so the heap is half as deep as a binary one, and the four lie in one cache line.
// An entry has no pointers, so the collector does not look at the heap.
//
// Invariants, which checkInvariants in the tests asserts: no entry is before its parent, and positions has at
// each slot the position of its entry.
//
// The zero Heap is empty and ready to use. It is not safe for concurrent use.
type Heap struct {
	n         int
	families  keytable.Column[family]
	positions keytable.Column[uint32]
}

func (h *Heap) Len() int { return h.n }

// First returns the least entry. There must be one.
func (h *Heap) First() Entry { return *h.at(root) }

// Has reports whether s is in the heap. A key must live in s.
func (h *Heap) Has(s keytable.Slot) bool {
	p := position(*h.positions.At(s))
	return p >= root && p < h.end() && h.at(p).Slot == s
}

// At returns the entry of s, which must be in the heap.
func (h *Heap) At(s keytable.Slot) Entry { return *h.at(h.position(s)) }

// Push puts in e, whose slot must not be in the heap.
func (h *Heap) Push(e Entry) {
	p := h.end()
	h.families.At(p.slot())
	h.positions.At(e.Slot)
	h.n++
	h.up(p, e)
}

// Pop takes out the least entry. There must be one.
func (h *Heap) Pop() Entry {
	e := h.First()
	h.removeAt(root)
	return e
}

// Set puts in e, in the place of the entry of the same slot if there is one. A key must live in the slot.
func (h *Heap) Set(e Entry) {
	if h.Has(e.Slot) {
		h.Replace(e)
	} else {
		h.Push(e)
	}
}

// Replace puts e in the place of the entry of the same slot.
func (h *Heap) Replace(e Entry) { h.place(h.position(e.Slot), e) }

// Remove takes out s, which must be in the heap.
func (h *Heap) Remove(s keytable.Slot) { h.removeAt(h.position(s)) }

// Release gives back the memory that s, which must not be in the heap, shares with its neighbours. It is for
// slots whose memory their table has given back too.
func (h *Heap) Release(s keytable.Slot) { h.positions.Release(s) }

// Drop takes s out of h, and the key that lives there out of t, whose keys h orders.
func Drop[K comparable, V any](h *Heap, t *keytable.Table[K, V], s keytable.Slot) {
	h.Remove(s)
	t.Delete(s)
	if !t.HasMemory(s) {
		h.Release(s)
	}
}

// end returns the first position at which there is no entry.
func (h *Heap) end() position { return root + position(h.n) }

func (h *Heap) position(s keytable.Slot) position { return position(*h.positions.Existing(s)) }

func (h *Heap) removeAt(p position) {
	h.n--
	last := h.end()
	if p < last {
		h.place(p, *h.at(last))
	}
	h.families.Trim(last.slot())
}

// place puts e where it belongs from p on, up or down.
func (h *Heap) place(p position, e Entry) {
	if p != root && e.before(*h.at(p.parent())) {
		h.up(p, e)
	} else {
		h.down(p, e)
	}
}

// up puts e into p or, as long as e is before the parent, moves the parent down and tries again one level up.
func (h *Heap) up(p position, e Entry) {
	for p != root {
		parent := *h.at(p.parent())
		if !e.before(parent) {
			break
		}
		h.set(p, parent)
		p = p.parent()
	}
	h.set(p, e)
}

// down puts e into p or, as long as a child is before e, moves the first child up and continues below.
func (h *Heap) down(p position, e Entry) {
	for end := h.end(); p.children() < end; {
		children := h.family(p.children())
		first := children.first(end - p.children())
		if !children[first].before(e) {
			break
		}
		h.set(p, children[first])
		p = p.children() + first
	}
	h.set(p, e)
}

func (h *Heap) set(p position, e Entry) {
	*h.at(p) = e
	*h.positions.Existing(e.Slot) = uint32(p)
}

// position is where in the heap an entry is. The first one is not 0 but [root], so that all entries with one
// parent are a [family]: those of 3 are 4 to 7, those of 4 are 8 to 11, those of p begin at 4(p-2).
type position uint

const (
	arity          = 4
	root  position = arity - 1
)

func (p position) parent() position { return p/arity + 2 }

// children returns the first of the positions of p's children, which are arity in a row.
func (p position) children() position { return arity * (p - 2) }

// family has the entries of one parent. The root is the last of the first family, which is else empty.
type family [arity]Entry

// first returns the place of the least of the first n entries, or of all if n is more than there are.
func (f *family) first(n position) (first position) {
	if n < arity {
		for i := range n {
			if f[i].before(f[first]) {
				first = i
			}
		}
		return first
	}
	// There are nearly always four. This is a fifth faster for them than the loop.
	if f[1].before(f[0]) {
		first = 1
	}
	if f[2].before(f[first]) {
		first = 2
	}
	if f[3].before(f[first]) {
		first = 3
	}
	return first
}

func (h *Heap) at(p position) *Entry { return &h.family(p)[p%arity] }

// family returns the family of the entry at p.
func (h *Heap) family(p position) *family { return h.families.Existing(p.slot()) }

// slot returns the place of the family of the entry at p among all families.
func (p position) slot() keytable.Slot { return keytable.Slot(p / arity) }

// InOrder returns the entries from the least on, k of them in O(k log k). The heap must not change meanwhile.
func (h *Heap) InOrder() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		// next has the entries that may come next: those whose parents were yielded. In it, the slot of an entry is
		// an index of positions, which has their positions in h.
		var next Heap
		var positions []position
		push := func(p, n position) {
			for end := min(p+n, h.end()); p < end; p++ {
				e := *h.at(p)
				e.Slot = keytable.Slot(len(positions))
				positions = append(positions, p)
				next.Push(e)
			}
		}
		for push(root, 1); next.Len() > 0; {
			p := positions[next.Pop().Slot]
			if !yield(*h.at(p)) {
				return
			}
			push(p.children(), arity)
		}
	}
}
