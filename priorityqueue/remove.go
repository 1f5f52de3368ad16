package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Remove takes key out of the queue, and returns its state before. A key that is Processing stays with its worker, who calls Done
// as usual, and does not come again. The limiter's count stays until Forget. Remove works after shutdown, and may end a drain.
func (q *Queue[T]) Remove(key T) State {
	h := keytable.HashOf(key)
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	s, e := q.mu.keys.Find(h, key)
	if e == nil {
		return Absent
	}
	before := e.Value.state.public()
	q.removeLocked(s, &e.Value, now)
	return before
}

// Discard is Remove and Forget. It reports whether key was in the queue.
func (q *Queue[T]) Discard(key T) bool {
	state := q.Remove(key)
	q.Forget(key)
	return state != Absent
}

// removeLocked takes the key at s out of the queue, or makes a held one not come again. It leaves a resting one alone.
func (q *Queue[T]) removeLocked(s keytable.Slot, it *item, now time.Duration) {
	switch it.state {
	case queued:
		if q.observer != nil {
			q.observer.Unqueued(s)
		}
		q.countGoneLocked(it.priority)
		q.leaveLineLocked(s, it)
		q.deleteLocked(s, it, now)
	case waiting:
		q.mu.due.Remove(s)
		q.deleteLocked(s, it, now)
	case rerun, rerunLater:
		q.cancelRerunLocked(s, it)
		if it.noted {
			q.mu.notes.Canceled(s)
		}
	}
}

// deleteLocked forgets the key at s, which is in no line and not in due: at once, or when its MinInterval is over.
func (q *Queue[T]) deleteLocked(s keytable.Slot, it *item, now time.Duration) {
	if it.noted {
		q.mu.notes.Remove(s)
		it.noted = false
	}
	if q.config.Group != nil {
		q.leaveGroupLocked(s)
	}
	if q.config.MinInterval > 0 && !q.shuttingDown.Load() && q.nextStartLocked(s) > now {
		it.state, it.limited = resting, false
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
