package slotheap

import (
	"container/heap"
	"iter"
)

// InOrder returns the entries from the least on. The heap must not change meanwhile. To read k of them takes
// O(k log k).
func (h *Heap) InOrder() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		f := frontier{heap: h}
		for p, n := root, position(1); ; {
			for end := min(p+n, h.end()); p < end; p++ {
				heap.Push(&f, p)
			}
			if len(f.positions) == 0 {
				return
			}
			next := heap.Pop(&f).(position)
			if !yield(*h.at(next)) {
				return
			}
			p, n = next.children(), arity
		}
	}
}

// frontier has the positions that come next: InOrder has read their parents, and not yet them.
type frontier struct {
	heap      *Heap
	positions []position
}

func (f *frontier) Len() int { return len(f.positions) }

func (f *frontier) Less(i, j int) bool {
	return f.heap.at(f.positions[i]).before(*f.heap.at(f.positions[j]))
}

func (f *frontier) Swap(i, j int) { f.positions[i], f.positions[j] = f.positions[j], f.positions[i] }
func (f *frontier) Push(p any)    { f.positions = append(f.positions, p.(position)) }

func (f *frontier) Pop() any {
	last := len(f.positions) - 1
	p := f.positions[last]
	f.positions = f.positions[:last]
	return p
}
