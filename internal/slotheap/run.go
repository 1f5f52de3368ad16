package slotheap

import (
	"iter"
	"math/rand/v2"
	"slices"
)

// Run is entries in order, to which none can be added.
//
// It is sorted no further than it was read, by incremental quicksort (Paredes and Navarro, Optimal incremental
// sorting, 2006): to find the first one, a part of the entries that is not sorted is divided in two until what
// comes first is short; the bounds are remembered. So the first Pop of n entries takes O(n), and none keeps
// its caller waiting for O(n log n), which is what all of them take. For a large [Heap] that is several times
// quicker than to Pop them, because dividing reads memory from one end to the other.
//
// No two entries should have both the same Rank and the same Tie: among many that do, a Pop takes O(n).
//
// Invariants, for entries from next on:
//   - Those before sorted are in order, and not after any other.
//   - Those before a bound are not after those from it on. The bounds descend, and all are after sorted.
//
// The zero Run is empty.
type Run[T uint32 | int64] struct {
	entries      []Entry[T]
	next, sorted int
	bounds       []int
}

// TakeMost takes out all entries of that rank or less, if they seem to be most of the heap, and none otherwise. The
// slots of those that it takes out are not in the heap any more. It takes O(n) time, or nearly none if it takes out
// none.
func (h *Heap[T]) TakeMost(rank int64) (r Run[T]) {
	if !h.isMostlyUpTo(rank) {
		return r
	}
	r.entries = make([]Entry[T], 0, h.n)
	end, kept := h.end(), root
	for p := root; p < end; p++ {
		if e := *h.nodes.at(p); e.Rank <= rank {
			r.entries = append(r.entries, e)
		} else {
			h.set(kept, e)
			kept++
		}
	}
	h.n = int(kept - root)
	h.nodes.trim(kept)
	h.heapify()
	return r
}

// isMostlyUpTo guesses, from a few entries of all parts of the heap, whether most of them are of that rank or less.
func (h *Heap[T]) isMostlyUpTo(rank int64) bool {
	if h.n == 0 {
		return false
	}
	const few = 16
	n := 0
	for i := range few {
		if h.nodes.at(root+position(h.n*i/few)).Rank <= rank {
			n++
		}
	}
	return n > few/2
}

// sortAtOnce is how many entries are not divided any more: as few as slices.SortFunc sorts by insertion.
const sortAtOnce = 12

// Len returns the number of entries that are left.
func (r *Run[T]) Len() int { return len(r.entries) - r.next }

// Pop takes out the least entry. There must be one. Memory is given back with the last.
func (r *Run[T]) Pop() Entry[T] {
	if r.next == r.sorted {
		r.sortMore()
	}
	e := r.entries[r.next]
	r.next++
	if r.Len() == 0 {
		*r = Run[T]{}
	}
	return e
}

// InOrder returns the entries from the least on. The run must not change meanwhile.
func (r *Run[T]) InOrder() iter.Seq[Entry[T]] {
	return func(yield func(Entry[T]) bool) {
		for i := r.next; i < len(r.entries); i++ {
			if i == r.sorted {
				r.sortMore()
			}
			if !yield(r.entries[i]) {
				return
			}
		}
	}
}

// sortMore sorts the least of the entries that are not sorted. There must be one.
func (r *Run[T]) sortMore() {
	end := len(r.entries)
	if last := len(r.bounds) - 1; last >= 0 {
		end = r.bounds[last]
		r.bounds = r.bounds[:last]
	}
	for end-r.sorted > sortAtOnce {
		r.bounds = append(r.bounds, end)
		end = r.sorted + divide(r.entries[r.sorted:end])
	}
	slices.SortFunc(r.entries[r.sorted:end], Entry[T].compare)
	r.sorted = end
}

// divide moves the entries, of which there must be two, such that none of the first n is after any other,
// and returns n, which is neither 0 nor all.
func divide[T uint32 | int64](entries []Entry[T]) (n int) {
	last := len(entries) - 1
	pivot := pivotOf(entries)
	entries[pivot], entries[last] = entries[last], entries[pivot]
	p := entries[last]
	// Whether an entry is before p is not foretold by a processor, so there is no branch on it.
	for i := range last {
		e := entries[i]
		entries[i] = entries[n]
		entries[n] = e
		n += e.isBefore(p)
	}
	entries[n], entries[last] = entries[last], entries[n]
	return max(n, 1)
}

// pivotOf returns the place of the middle one of three entries. Which three is left to chance, so that no
// order of the entries makes dividing slow every time.
func pivotOf[T uint32 | int64](entries []Entry[T]) int {
	a, b, c := rand.IntN(len(entries)), rand.IntN(len(entries)), rand.IntN(len(entries))
	if entries[b].before(entries[a]) {
		a, b = b, a
	}
	switch {
	case entries[c].before(entries[a]):
		return a
	case entries[c].before(entries[b]):
		return c
	}
	return b
}
