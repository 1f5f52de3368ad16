package redisqueue

import (
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
)

var (
	_ workqueue.ExtendedRateLimiting[string] = (*Queue[string])(nil)
	_ workqueue.Operable[string]             = (*Queue[string])(nil)
	_ workqueue.Leaser[string]               = (*Queue[string])(nil)
)

// DropQueued returns nil: other replicas handle the keys.
func (q *Queue[T]) DropQueued() []T { return nil }

// AddedAt returns when item, which a worker of this replica holds, was added or came due before it was handed out, by this process's
// clock. It is zero for any other key.
func (q *Queue[T]) AddedAt(item T) time.Time {
	if h := q.holdOf(item); h != nil {
		return h.addedAt
	}
	return time.Time{}
}

// maxPriority bounds priorities, so that places in the line stay exact.
const maxPriority = 1_000_000

// AddWithPriority adds item with a priority after the given time, or at once unless that is positive. A key of priority 1 is handed out
// before all keys of priority 0 that were queued up to Config.PriorityStep earlier or later than it, one of priority 2 up to twice that,
// and so on: no key starves. Of several adds for the same hand-out the highest priority counts; those without one have priority 0. A key that
// fails, or whose lease is lost, keeps its priority. Priorities beyond a million count as a million. It does not block. After shutdown it
// does nothing, as Add.
func (q *Queue[T]) AddWithPriority(item T, priority int, after time.Duration) {
	priority = max(-maxPriority, min(priority, maxPriority))
	q.enqueue(item, func(s *shard[T], encoded string) (seq uint64) {
		if after > 0 {
			q.mu.totals.stats.Retries++
		} else if len(s.watched) > 0 {
			s.addedAgainLocked(encoded)
		}
		s.setDrainedLocked(false)
		return s.enqueueLocked(newOp(codeAddPriority, fmt.Sprintf("%016d%s%d %d", len(encoded), encoded, priority, ceilMicros(after))))
	})
}

// PriorityOf returns the priority with which item was handed out, if a worker of this replica holds it. For any other key it asks the
// server for up to a second, and returns 0 if that does not answer.
func (q *Queue[T]) PriorityOf(item T) int {
	if h := q.holdOf(item); h != nil {
		return h.priority
	}
	k, _ := q.SnapshotKey(item)
	return k.Priority
}

// Below returns nil: the queue has no other below it.
func (q *Queue[T]) Below() any { return nil }

// PauseGroup does nothing: the queue has no groups.
func (q *Queue[T]) PauseGroup(string, time.Duration) {}

// ResumeGroup does nothing: the queue has no groups.
func (q *Queue[T]) ResumeGroup(string) {}

// PausedGroups returns nil: the queue has no groups.
func (q *Queue[T]) PausedGroups() []string { return nil }

// SnapshotGroup returns nothing: the queue has no groups.
func (q *Queue[T]) SnapshotGroup(string) (g workqueue.GroupSnapshot) { return g }
