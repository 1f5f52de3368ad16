// Package slotheap keeps slots of a [keytable.Table] in a heap: the least is on top, and each can be moved
// or taken out.
package slotheap

import (
	"iter"
	"math/bits"
	"unsafe"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Entry is a slot and what it is ordered by: by Rank, and by Tie where that is equal. Ties of 32 bits are numbers
// that wrap around: one is before another if it is less than 2^31 numbers before it.
type Entry[T uint32 | int64] struct {
	Rank int64
	Tie  T
	Slot keytable.Slot
}

func (e Entry[T]) before(f Entry[T]) bool {
	if e.Rank != f.Rank {
		return e.Rank < f.Rank
	}
	if unsafe.Sizeof(e.Tie) == 4 { // known to the compiler
		return int32(e.Tie-f.Tie) < 0
	}
	return e.Tie < f.Tie
}

// isBefore is before as a number, 1 if it is true, found without a branch.
func (e Entry[T]) isBefore(f Entry[T]) int {
	const sign = 1 << 63 // With the sign turned round, unsigned numbers have the order of the signed ones.
	_, borrow := bits.Sub64(uint64(e.Tie)^sign, uint64(f.Tie)^sign, 0)
	if unsafe.Sizeof(e.Tie) == 4 {
		borrow = uint64(e.Tie-f.Tie) >> 31
	}
	_, borrow = bits.Sub64(uint64(e.Rank)^sign, uint64(f.Rank)^sign, borrow)
	return int(borrow)
}

func (e Entry[T]) compare(f Entry[T]) int { return f.isBefore(e) - e.isBefore(f) }

// Heap has slots, each at most once.
//
// A node has four children, so the heap is half as deep as a binary one, and the four lie side by side: where
// an entry takes 16 bytes, in one cache line. An entry has no pointers, so the collector does not look at the
// heap. Where in the heap a slot's entry is, is in a column beside the table of the slots.
//
// Invariants, which checkInvariants in the tests asserts:
//   - No entry is before its parent.
//   - For each entry, the value at its slot in positions is the entry's position.
//
// The zero Heap is empty and ready to use. It is not safe for concurrent use.
type Heap[T uint32 | int64] struct {
	n         int
	nodes     nodes[T]
	positions keytable.Column[uint32]
}

// Len returns the number of slots.
func (h *Heap[T]) Len() int { return h.n }

// First returns the least entry. There must be one.
func (h *Heap[T]) First() Entry[T] { return *h.nodes.at(root) }

// Has reports whether s is in the heap. A key must live in s.
func (h *Heap[T]) Has(s keytable.Slot) bool {
	p := position(*h.positions.At(s))
	return p >= root && p < h.end() && h.nodes.at(p).Slot == s
}

// At returns the entry of s, which must be in the heap.
func (h *Heap[T]) At(s keytable.Slot) Entry[T] { return *h.nodes.at(h.position(s)) }

// All returns the entries in no particular order. The heap must not change meanwhile.
func (h *Heap[T]) All() iter.Seq[Entry[T]] {
	return func(yield func(Entry[T]) bool) {
		for p := root; p < h.end() && yield(*h.nodes.at(p)); p++ {
		}
	}
}

// Push puts in e, whose slot must not be in the heap.
func (h *Heap[T]) Push(e Entry[T]) {
	p := h.end()
	h.nodes.provide(p)
	h.positions.At(e.Slot)
	h.n++
	h.up(p, e)
}

// Pop takes out the least entry. There must be one.
func (h *Heap[T]) Pop() Entry[T] {
	e := h.First()
	h.removeAt(root)
	return e
}

// Replace puts e in the place of the entry of the same slot.
func (h *Heap[T]) Replace(e Entry[T]) { h.place(h.position(e.Slot), e) }

// Remove takes out s, which must be in the heap.
func (h *Heap[T]) Remove(s keytable.Slot) { h.removeAt(h.position(s)) }

// Rerank gives every entry the rank that is computed from it, in O(n).
func (h *Heap[T]) Rerank(rank func(Entry[T]) int64) {
	for p := root; p < h.end(); p++ {
		e := h.nodes.at(p)
		e.Rank = rank(*e)
	}
	h.heapify()
}

// heapify makes a heap of entries that are in no order, though the positions of their slots are right.
func (h *Heap[T]) heapify() {
	for p := (h.end() - 1).parent(); p >= root; p-- {
		h.down(p, *h.nodes.at(p))
	}
}

// Clear takes out all slots.
func (h *Heap[T]) Clear() { *h = Heap[T]{} }

// Release gives back the memory that s, which must not be in the heap, and its neighbours take. It is for
// slots of which their table has given back the memory too.
func (h *Heap[T]) Release(s keytable.Slot) { h.positions.Release(s) }

// end returns the first position at which there is no entry.
func (h *Heap[T]) end() position { return root + position(h.n) }

func (h *Heap[T]) position(s keytable.Slot) position { return position(*h.positions.Existing(s)) }

func (h *Heap[T]) removeAt(p position) {
	h.n--
	last := h.end()
	if p < last {
		h.place(p, *h.nodes.at(last))
	}
	h.nodes.trim(last)
}

// place puts e where it belongs from p on, up or down.
func (h *Heap[T]) place(p position, e Entry[T]) {
	if p != root && e.before(*h.nodes.at(p.parent())) {
		h.up(p, e)
	} else {
		h.down(p, e)
	}
}

// up puts e into p or, as long as e is before the parent, moves the parent down and tries again one level up.
func (h *Heap[T]) up(p position, e Entry[T]) {
	for p != root {
		parent := *h.nodes.at(p.parent())
		if !e.before(parent) {
			break
		}
		h.set(p, parent)
		p = p.parent()
	}
	h.set(p, e)
}

// down puts e into p or, as long as a child is before e, moves the first child up and tries again one level
// down.
func (h *Heap[T]) down(p position, e Entry[T]) {
	for end := h.end(); p.children() < end; {
		children := h.nodes.family(p.children())
		first := children.first(end - p.children())
		if !children[first].before(e) {
			break
		}
		h.set(p, children[first])
		p = p.children() + first
	}
	h.set(p, e)
}

func (h *Heap[T]) set(p position, e Entry[T]) {
	*h.nodes.at(p) = e
	*h.positions.Existing(e.Slot) = uint32(p)
}
