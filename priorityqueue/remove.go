package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Remove takes key out of the queue, forgets its failures, and reports whether it was there. A held key
// stays with its worker. It is queued again only if it is added after that, or if the worker requeues or
// fails it. Remove works after shutdown, and may end a drain.
func (q *Queue[T]) Remove(key T) bool {
	h := keytable.HashOf(key)
	defer q.Forget(key) // After the unlock: the limiter is foreign code.
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceLocked()
	s, info := q.findLocked(h, key)
	if info != nil {
		q.removeLocked(s, info, now)
	}
	return info != nil
}

// removeLocked takes the key at s out of the queue, or, if it is held, what would queue it again.
func (q *Queue[T]) removeLocked(s keytable.Slot, info *keyInfo, now time.Duration) {
	switch info.state {
	case processing:
		return
	case waiting, rerunLater:
		q.mu.due.Remove(s)
	case queued, rerun:
		q.countDepthLocked(info, *q.nextPriorityLocked(s, info), -1)
		if info.line != keytable.None {
			q.leaveLineLocked(s, info)
		}
		if info.state == rerun {
			q.mu.reruns--
			if info.onHold {
				q.mu.rerunsOnHold--
			}
		} else if q.observer != nil {
			q.observer.Unqueued(s)
		}
	}
	if !info.state.isHeld() {
		q.leaveQueueLocked(s, info, now)
		return
	}
	info.state, info.byLimiter = processing, false
	q.mu.notes.Canceled(s)
}
