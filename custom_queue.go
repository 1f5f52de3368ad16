package workqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// Queue holds the keys that wait for a worker, and decides their order. [TypedQueueConfig] takes one. Its
// methods are called under the queue's lock: never two at once, and they must not call the queue back.
type Queue[T comparable] interface {
	// Touch is called when a key is added that is in the Queue already: queued, and not held by a worker.
	Touch(item T)
	// Push puts a key into the Queue. It is not called for a key that is there.
	Push(item T)
	// Len returns the number of keys in the Queue.
	Len() int
	// Pop takes out the next key. It is called only while Len is not zero.
	Pop() (item T)
}

// DefaultQueue returns a [Queue] that is first in, first out, for Queues that order some keys themselves and
// leave the rest to it. It has no lock of its own. Pop of an empty one panics.
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

func (q *Typed[T]) popCustomLocked() (keytable.Slot, *entry[T]) {
	for q.custom.Len() > 0 {
		item := q.custom.Pop()
		// A Queue may have keys of its own, which were never added. takeLocked marks them dirty.
		s, k, _ := q.mu.keys.FindOrInsert(keytable.HashOf(item), item)
		if k.Value&processing == 0 {
			return s, k
		}
		// A Queue that has a key twice must not make two workers hold it.
		if k.Value&dirty == 0 {
			q.markDirtyLocked(s, k)
		}
	}
	return keytable.None, nil
}
