package workqueue

import (
	"iter"

	"github.com/keyedqueue/workqueue/internal/stash"
)

// ring is a first-in, first-out buffer: a chain of blocks. The first is being emptied, and the last is
// being filled. It grows and shrinks by whole blocks, so no call copies or clears many elements.
//
// Elements that are not in the ring are zero. The zero ring is empty and ready to use.
type ring[E any] struct {
	head, tail *ringBlock[E]
	n          int
	// free is an empty block that will be the next tail, or nil. spare has the buffers of other empty blocks.
	free  *ringBlock[E]
	spare stash.Stash[E]
}

// ringBlock has the elements buf[first:end].
type ringBlock[E any] struct {
	buf        []E
	first, end int
	next       *ringBlock[E]
}

const (
	minBlockLen = 8
	maxBlockLen = 1 << 10
)

func (r *ring[E]) push(e E) {
	b := r.tail
	if b == nil || b.end == len(b.buf) {
		b = r.extend()
	}
	b.buf[b.end] = e
	b.end++
	r.n++
}

// extend makes room behind the tail, and returns the tail.
func (r *ring[E]) extend() *ringBlock[E] {
	switch b := r.tail; {
	case b == nil:
		r.tail = &ringBlock[E]{buf: make([]E, minBlockLen)}
		r.head = r.tail
	case r.head == b && len(b.buf) < maxBlockLen:
		// A ring of few elements is one block, whose elements move to its start.
		if 2*(b.end-b.first) > len(b.buf) {
			grown := make([]E, 2*len(b.buf))
			copy(grown, b.buf[b.first:b.end])
			b.buf = grown
		} else {
			moved := copy(b.buf, b.buf[b.first:b.end])
			clear(b.buf[moved:])
		}
		b.first, b.end = 0, r.n
	default:
		if r.free == nil {
			r.free = &ringBlock[E]{buf: r.spare.Get(maxBlockLen)}
		}
		b.next, r.tail, r.free = r.free, r.free, nil
	}
	return r.tail
}

// pop takes out the oldest element. There must be one.
func (r *ring[E]) pop() E {
	var zero E
	b := r.head
	e := b.buf[b.first]
	b.buf[b.first] = zero
	b.first++
	r.n--
	if b.first == b.end {
		r.emptied()
	}
	return e
}

// emptied takes the first block, which has no element left, out of the chain. The only one is reused.
func (r *ring[E]) emptied() {
	b, spare := r.head, r.free
	b.first, b.end = 0, 0
	if b != r.tail {
		r.head, b.next, r.free = b.next, nil, b
	} else {
		r.free = nil
	}
	if spare != nil {
		r.spare.Put(spare.buf)
	}
}

// ahead returns up to n of the oldest elements, as many as lie side by side.
func (r *ring[E]) ahead(n int) []E {
	b := r.head
	return b.buf[b.first:min(b.first+n, b.end)]
}

// all returns the elements, the oldest first. The ring must not change meanwhile.
func (r *ring[E]) all() iter.Seq[E] {
	return func(yield func(E) bool) {
		for b := r.head; b != nil; b = b.next {
			for _, e := range b.buf[b.first:b.end] {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Queue holds the queued keys and decides their order. Its methods are called under the queue's lock, and
// must not call the queue.
type Queue[T comparable] interface {
	// Touch is called when a queued key is added.
	Touch(item T)
	// Push puts in a new key.
	Push(item T)
	Len() int
	// Pop takes out the next key; Len is not zero then.
	Pop() (item T)
}

// DefaultQueue returns a [Queue] that is first in, first out, without a lock. Pop of an empty one panics.
func DefaultQueue[T comparable]() Queue[T] { return &fifo[T]{} }

type fifo[T comparable] struct{ ring[T] }

func (f *fifo[T]) Touch(T)     {}
func (f *fifo[T]) Push(item T) { f.push(item) }
func (f *fifo[T]) Len() int    { return f.n }

func (f *fifo[T]) Pop() T {
	if f.n == 0 {
		panic("workqueue: Pop of an empty Queue")
	}
	return f.pop()
}
