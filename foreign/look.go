package foreign

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/notes"
)

// Len counts the key that the fetcher has got and, after the shutdown, what below has dropped.
func (q *wrapper[T]) Len() int {
	n := q.below.Len()
	q.mu.Lock()
	defer q.unlock()
	if q.mu.down {
		return len(q.mu.left)
	}
	if q.mu.fetched != nil {
		n++
	}
	return n
}

// Causes returns why item, which a worker holds or which was added since, was added.
func (q *wrapper[T]) Causes(item T) (c workqueue.Causes) {
	q.mu.Lock()
	defer q.unlock()
	switch k := q.mu.keys[item]; {
	case k == nil:
	case k.held:
		c = k.causes
	default:
		c = k.next
	}
	return c
}

// AddedAgain returns a channel that is closed when item, which a worker holds, is added here.
func (q *wrapper[T]) AddedAgain(item T) <-chan struct{} {
	q.mu.Lock()
	defer q.unlock()
	k := q.mu.keys[item]
	switch {
	case k == nil || !k.held:
		return nil
	case k.loud:
		return notes.Closed
	case k.again == nil:
		k.again = make(chan struct{})
	}
	return k.again
}

// AddedAt is zero: below does not say it.
func (q *wrapper[T]) AddedAt(T) (at time.Time) { return at }

// Stats counts what was handed out here, and what is queued below.
func (q *wrapper[T]) Stats() workqueue.Stats {
	st := workqueue.Stats{Queued: q.Len(), ShuttingDown: q.ShuttingDown(), Failing: q.failures.Len()}
	q.mu.Lock()
	defer q.unlock()
	st.Processing, st.OnHold, st.Dropped = len(q.mu.held), q.mu.onHold, q.mu.dropped
	return st
}

const maxSnapshot = 512

// PutOnHold notes that the work on item, which a worker holds, has ended. Below does not hear of it.
func (q *wrapper[T]) PutOnHold(item T) {
	q.mu.Lock()
	defer q.unlock()
	if k := q.mu.keys[item]; k != nil && k.held && !k.onHold {
		k.onHold = true
		q.mu.onHold++
	}
}

// Snapshot has the keys that are held, and those that fail.
func (q *wrapper[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	limit = min(max(limit, 0), maxSnapshot)
	s := workqueue.Snapshot[T]{Stats: q.Stats(), Failing: q.FailingKeys(limit)}
	for k := range q.SnapshotKeys() {
		if len(s.Processing) == limit {
			break
		}
		if !k.OnHold {
			s.Processing = append(s.Processing, k)
		}
	}
	return s
}

// SnapshotKey finds keys that are held, and returns the causes and the failures of others too.
func (q *wrapper[T]) SnapshotKey(item T) (k workqueue.KeySnapshot[T], found bool) {
	k = q.snapshot(item)
	k.Failures, k.Requeues = q.Failures(item), q.NumRequeues(item)
	return k, k.State != ""
}

func (q *wrapper[T]) snapshot(item T) workqueue.KeySnapshot[T] {
	q.mu.Lock()
	defer q.unlock()
	s := workqueue.KeySnapshot[T]{Key: item}
	k := q.mu.keys[item]
	if k == nil {
		return s
	}
	causes := k.next
	if k.held {
		s.State, s.Again, s.OnHold, causes = workqueue.KeyProcessing, k.added, k.onHold, k.causes
	}
	if !causes.IsZero() {
		s.Causes = &causes
	}
	return s
}

// SnapshotKeys yields the keys that are held.
func (q *wrapper[T]) SnapshotKeys() iter.Seq[workqueue.KeySnapshot[T]] {
	return func(yield func(workqueue.KeySnapshot[T]) bool) {
		for _, item := range q.heldKeys() {
			if k, found := q.SnapshotKey(item); found && !yield(k) {
				return
			}
		}
	}
}

func (q *wrapper[T]) heldKeys() []T {
	q.mu.Lock()
	defer q.unlock()
	return slices.Collect(maps.Keys(q.mu.held))
}
