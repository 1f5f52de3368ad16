package slotheap

import (
	"container/heap"
	"iter"
)

// InOrder returns the positions of n entries that are a heap in which a node has four children, from the
// least on. The heap is not changed, and must not change meanwhile. To read k positions takes O(k log k).
func InOrder(n int, before func(i, j int) bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		f := frontier{before: before}
		for pos, children := 0, 1; ; {
			for end := min(pos+children, n); pos < end; pos++ {
				heap.Push(&f, pos)
			}
			if len(f.positions) == 0 {
				return
			}
			next := heap.Pop(&f).(int)
			if !yield(next) {
				return
			}
			pos, children = arity*next+1, arity
		}
	}
}

// frontier has the positions whose parents have been read, and not they themselves.
type frontier struct {
	before    func(i, j int) bool
	positions []int
}

func (f *frontier) Len() int           { return len(f.positions) }
func (f *frontier) Less(i, j int) bool { return f.before(f.positions[i], f.positions[j]) }
func (f *frontier) Swap(i, j int)      { f.positions[i], f.positions[j] = f.positions[j], f.positions[i] }
func (f *frontier) Push(pos any)       { f.positions = append(f.positions, pos.(int)) }

func (f *frontier) Pop() any {
	last := len(f.positions) - 1
	pos := f.positions[last]
	f.positions = f.positions[:last]
	return pos
}

// InOrder returns the entries from the least on. The heap must not change meanwhile. To read k of them takes
// O(k log k).
func (h *Heap[T]) InOrder() iter.Seq[Entry[T]] {
	return func(yield func(Entry[T]) bool) {
		before := func(i, j int) bool { return h.entries[i].before(h.entries[j]) }
		for pos := range InOrder(len(h.entries), before) {
			if !yield(h.entries[pos]) {
				return
			}
		}
	}
}
