// Package slotheap keeps slots of a [keytable.Table] in a heap: the least is on top, and each can be moved
// or taken out.
package slotheap

import "github.com/keyedqueue/workqueue/internal/keytable"

// Entry is a slot and its place in the order: by Rank, and by Tie where ranks are equal.
type Entry struct {
	Rank int64
	// Tie is usually the next number of a counter, and may wrap around: one Tie is before another if it is
	// less than 2^31 numbers before it.
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
// Invariants, which checkInvariants in the tests asserts: no entry is before its parent, and positions has at each slot
// the position of its entry.
//
// The zero Heap is empty and ready to use. It is not safe for concurrent use.
type Heap struct {
	n         int
	families  keytable.Column[family]
	positions keytable.Column[uint32]
}

// Len returns the number of slots.
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

// Replace puts e in the place of the entry of the same slot.
func (h *Heap) Replace(e Entry) { h.place(h.position(e.Slot), e) }

// Remove takes out s, which must be in the heap.
func (h *Heap) Remove(s keytable.Slot) { h.removeAt(h.position(s)) }

// Release gives back the memory that s, which must not be in the heap, shares with its neighbours. It is for
// slots whose memory their table has given back too.
func (h *Heap) Release(s keytable.Slot) { h.positions.Release(s) }

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

// down puts e into p or, as long as a child is before e, moves the first child up and tries again one level down.
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
