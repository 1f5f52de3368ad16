// Package slotheap keeps slots of a [keytable.Table] in a heap: the least is on top, and each can be moved
// or taken out.
package slotheap

import (
	"cmp"
	"slices"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Entry is a slot and what it is ordered by: by Rank, and by Tie where that is equal.
type Entry[T uint32 | int64] struct {
	Rank int64
	Tie  T
	Slot keytable.Slot
}

func (e Entry[T]) before(f Entry[T]) bool {
	return e.Rank < f.Rank || e.Rank == f.Rank && e.Tie < f.Tie
}

// Heap has slots, each at most once. Of which slots it has, the user keeps account.
//
// A node has four children, so the heap is half as deep as a binary one, and the children lie in one or two
// cache lines. An entry has no pointers, so the collector does not look at the heap. Where in the heap a
// slot's entry is, is in a column beside the table of the slots.
//
// Invariants, which checkInvariants in the tests asserts:
//   - No entry is before its parent.
//   - For each entry, the value at its slot in positions is the entry's position.
//
// The zero Heap is empty and ready to use. It is not safe for concurrent use.
type Heap[T uint32 | int64] struct {
	entries   []Entry[T]
	positions keytable.Column[uint32]
}

const (
	arity = 4
	// keptLen is the number of entries for which memory is kept.
	keptLen = 1 << 10
)

// Len returns the number of slots.
func (h *Heap[T]) Len() int { return len(h.entries) }

// First returns the least entry. There must be one.
func (h *Heap[T]) First() Entry[T] { return h.entries[0] }

// At returns the entry of s, which must be in the heap.
func (h *Heap[T]) At(s keytable.Slot) Entry[T] { return h.entries[*h.positions.At(s)] }

// All returns the entries in the order of the heap, to be read before the next change.
func (h *Heap[T]) All() []Entry[T] { return h.entries }

// Push puts in e, whose slot must not be in the heap.
func (h *Heap[T]) Push(e Entry[T]) {
	h.entries = append(h.entries, e)
	h.up(len(h.entries)-1, e)
}

// Replace puts e in the place of the entry of the same slot.
func (h *Heap[T]) Replace(e Entry[T]) { h.place(int(*h.positions.At(e.Slot)), e) }

// Remove takes out s, which must be in the heap.
func (h *Heap[T]) Remove(s keytable.Slot) {
	pos, last := int(*h.positions.At(s)), len(h.entries)-1
	e := h.entries[last]
	h.entries = h.entries[:last]
	if pos < last {
		h.place(pos, e)
	}
	if c := cap(h.entries); c > keptLen && last < c/4 {
		h.entries = append(make([]Entry[T], 0, c/2), h.entries...)
	}
}

// Rerank gives every entry the rank that is computed from it, in O(n log n).
func (h *Heap[T]) Rerank(rank func(Entry[T]) int64) {
	for i, e := range h.entries {
		h.entries[i].Rank = rank(e)
	}
	slices.SortFunc(h.entries, func(e, f Entry[T]) int {
		return cmp.Or(cmp.Compare(e.Rank, f.Rank), cmp.Compare(e.Tie, f.Tie))
	})
	for i, e := range h.entries { // A sorted slice is a heap.
		h.set(i, e)
	}
}

// Clear takes out all slots.
func (h *Heap[T]) Clear() { *h = Heap[T]{} }

// Release gives back the memory that s, which must not be in the heap, and its neighbours take. It is for
// slots of which their table has given back the memory too.
func (h *Heap[T]) Release(s keytable.Slot) { h.positions.Release(s) }

// place puts e where it belongs from pos on, up or down.
func (h *Heap[T]) place(pos int, e Entry[T]) {
	if pos > 0 && e.before(h.entries[(pos-1)/arity]) {
		h.up(pos, e)
	} else {
		h.down(pos, e)
	}
}

// up puts e into position pos or, as long as e is before the parent, moves the parent down and tries again
// one level up.
func (h *Heap[T]) up(pos int, e Entry[T]) {
	for pos > 0 {
		parent := (pos - 1) / arity
		if !e.before(h.entries[parent]) {
			break
		}
		h.set(pos, h.entries[parent])
		pos = parent
	}
	h.set(pos, e)
}

// down puts e into position pos or, as long as a child is before e, moves the first child up and tries again
// one level down.
func (h *Heap[T]) down(pos int, e Entry[T]) {
	for {
		child := arity*pos + 1
		if child >= len(h.entries) {
			break
		}
		siblings := h.entries[child:min(child+arity, len(h.entries))]
		first := 0
		for i := range siblings {
			if siblings[i].before(siblings[first]) {
				first = i
			}
		}
		if !siblings[first].before(e) {
			break
		}
		h.set(pos, siblings[first])
		pos = child + first
	}
	h.set(pos, e)
}

func (h *Heap[T]) set(pos int, e Entry[T]) {
	h.entries[pos] = e
	*h.positions.At(e.Slot) = uint32(pos)
}
