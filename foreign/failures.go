package foreign

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Fail counts a failure of item, and adds item by below's AddRateLimited, or gives it up.
func (q *wrapper[T]) Fail(_ context.Context, item T, f workqueue.Failure) (workqueue.Retry, error) {
	h := keytable.HashOf(item)
	r := q.failures.Judge(h, item, failures.Failure(f), unknown[T]{}, false)
	if !r.GivenUp {
		q.failures.Record(h, item, r, f.Err)
	}
	switch {
	case r.GivenUp:
		q.below.Forget(item)
	case r.Delay > 0: // of AtLeast
		q.below.AddAfter(item, r.Delay)
	default:
		q.below.AddRateLimited(item)
	}
	return workqueue.Retry(r), nil
}

// unknown is the limiter of a queue that does not say how long it makes a key wait.
type unknown[T comparable] struct{}

func (unknown[T]) When(T) time.Duration { return 0 }

// Failures returns the failures that Fail has counted.
func (q *wrapper[T]) Failures(item T) workqueue.Failures {
	return workqueue.Failures(q.failures.Of(item))
}

// FailingKeys returns the keys that have failed most often.
func (q *wrapper[T]) FailingKeys(limit int) []workqueue.KeySnapshot[T] {
	return failures.Show(q.failures, limit, q.SnapshotKey)
}

// Forget forgets item's failures, here and below.
func (q *wrapper[T]) Forget(item T) {
	q.failures.Forget(item)
	q.below.Forget(item)
}

// NumRequeues returns how many failures were counted, here or below if that is more.
func (q *wrapper[T]) NumRequeues(item T) int {
	return max(q.failures.Of(item).Count, q.below.NumRequeues(item))
}

// isHeld reports whether a worker has item: then its failures are kept.
func (q *wrapper[T]) isHeld(item T) bool {
	q.mu.Lock()
	defer q.unlock()
	k := q.mu.keys[item]
	return k != nil && k.held
}
