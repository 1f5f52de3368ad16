package priorityqueue

import "github.com/keyedqueue/workqueue"

var _ workqueue.KeyRemover[int] = (*Queue[int])(nil)

// Discard is Remove and Forget. It reports whether key was in the queue.
func (q *Queue[T]) Discard(key T) bool {
	state := q.Remove(key)
	q.Forget(key)
	return state != Absent
}
