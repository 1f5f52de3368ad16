package priorityqueue

import "context"

// DoneAndGet is deleted with the one in workqueue.Extended.
func (q *Queue[T]) DoneAndGet(ctx context.Context, done T) (item T, err error) {
	q.Done(done)
	return q.GetContext(ctx)
}
