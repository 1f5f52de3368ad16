package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Remove is that of [workqueue.Operable]. It works after shutdown, and may end a drain.
func (q *Queue[T]) Remove(key T) bool {
	removed := q.remove(key)
	q.Forget(key)
	return removed
}

func (q *Queue[T]) remove(key T) bool {
	h, now := keytable.HashOf(key), q.readClockIfUsed()
	q.lockAndAdvance(now)
	defer q.unlock()
	s, it := q.findLocked(h, key)
	if it != nil {
		q.removeLocked(s, it, now)
	}
	return it != nil
}

// GivenUpKeys returns nil: the queue keeps no keys that are given up. RetryGivenUp and ForgetGivenUp return
// false.
func (q *Queue[T]) GivenUpKeys(int) []workqueue.GivenUpKey[T] { return nil }

func (q *Queue[T]) RetryGivenUp(T) bool { return false }

func (q *Queue[T]) ForgetGivenUp(T) bool { return false }

// Below returns nil: the queue has no other below it.
func (q *Queue[T]) Below() any { return nil }

// removeLocked takes the key at s out of the queue, or makes a held one not come again. It leaves a resting
// one alone.
func (q *Queue[T]) removeLocked(s keytable.Slot, it *item, now time.Duration) {
	switch it.state {
	case queued:
		if q.observer != nil {
			q.observer.Unqueued(s)
		}
		q.mu.depths.add(it.priority, -1)
		q.leaveLineLocked(s, it)
		q.deleteLocked(s, it, now)
	case waiting:
		q.mu.due.Remove(s)
		q.deleteLocked(s, it, now)
	case rerun, rerunLater:
		q.cancelRerunLocked(s, it)
		q.mu.notes.Canceled(s)
	}
}

// deleteLocked forgets the key at s, which is in no line and not in due: at once, or when its MinInterval is
// over.
func (q *Queue[T]) deleteLocked(s keytable.Slot, it *item, now time.Duration) {
	if it.has(noted) {
		q.mu.notes.Remove(s)
	}
	if q.config.Group != nil {
		q.leaveGroupLocked(s)
	}
	if q.config.MinInterval > 0 && !q.shuttingDown.Load() && q.nextStartLocked(s) > now {
		it.state, it.flags = resting, 0
		q.appendLocked(&q.mu.resting, s)
		return
	}
	q.freeLocked(s)
}

// freeLocked gives back the slot s, whose key is out of everything else.
func (q *Queue[T]) freeLocked(s keytable.Slot) {
	q.mu.keys.Delete(s)
	if q.mu.keys.HasMemory(s) {
		return
	}
	q.mu.details.Release(s)
	q.mu.groupOf.Release(s)
	q.mu.due.Release(s)
	if q.observer != nil {
		q.observer.Release(s)
	}
}
