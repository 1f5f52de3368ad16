package priorityqueue

import "time"

// What package worker needs to know of a queue beyond its interface, without importing this package. See
// worker.PriorityQueue and worker.KeyFinder.

// Has reports whether key is in the queue: queued, waiting or held by a worker.
func (q *Queue[T]) Has(key T) bool { return q.inspect(key).State != Absent }

// PriorityOf returns the priority of key, as Inspect does, or 0 if it is not in the queue.
func (q *Queue[T]) PriorityOf(key T) int { return q.inspect(key).Priority }

// AddWithPriority is AddWithOpts of one key with that Priority and After.
func (q *Queue[T]) AddWithPriority(key T, priority int, after time.Duration) {
	q.AddWithOpts(AddOpts{Priority: priority, After: after}, key)
}
