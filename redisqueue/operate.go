package redisqueue

import (
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

// AddWithPriority adds item after the given time, or at once unless that is positive.
func (q *Queue[T]) AddWithPriority(item T, _ int, after time.Duration) { q.AddAfter(item, after) }

// PriorityOf returns 0.
func (q *Queue[T]) PriorityOf(T) int { return 0 }

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
