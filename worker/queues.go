package worker

import "time"

// PriorityQueue is what a queue offers if its keys have priorities, as those of package priorityqueue do. A pool
// whose queue implements it keeps a key's priority when the key comes again, and makes [Priority] and
// [Requeue] work.
type PriorityQueue[T comparable] interface {
	// PriorityOf returns the priority of a key, which a worker holds.
	PriorityOf(key T) int
	// AddWithPriority adds key with that priority after the given time, or at once unless that is positive.
	AddWithPriority(key T, priority int, after time.Duration)
}

// KeyFinder is what a queue offers if it knows where a key is. Through it a pool learns when a failing key
// is tried again, and that one was removed from the queue.
type KeyFinder[T comparable] interface {
	// FindKey reports whether the queue has key: queued, held by a worker or waiting for its time. In the last
	// case it returns when that comes, and otherwise the zero time.
	FindKey(key T) (due time.Time, found bool)
}
