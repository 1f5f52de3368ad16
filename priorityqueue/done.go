package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// See [workqueue.TypedInterface]. If the key was added for a later time, it waits. For a key that no worker
// holds Done only counts Stats.UnmatchedDones.
func (q *Queue[T]) Done(key T) {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceLocked()
	s := q.mu.lastTaken
	if s == keytable.None || q.mu.keys.At(s).Key != key {
		s, _ = q.mu.keys.Find(keytable.HashOf(key), key)
	}
	if s == keytable.None || !q.mu.keys.At(s).Value.state.isHeld() {
		q.mu.unmatchedDones++
		return
	}
	if s == q.mu.lastTaken {
		q.mu.lastTaken = keytable.None
	}
	if q.mu.held--; q.mu.held == 0 && q.mu.Draining() {
		q.mu.idleSince = q.config.Clock.Now()
	}
	q.countHeldLocked(s, -1)
	if q.observer != nil {
		q.observer.Finished(s, now)
	}
	info := &q.mu.keys.At(s).Value
	if info.onHold {
		q.setOnHoldLocked(s, info, false)
	}
	if info.state == processing {
		q.leaveQueueLocked(s, info, now)
		return
	}
	info.priority = q.mu.details.At(s).nextPriority
	if info.noted {
		info.noted = q.mu.notes.Done(s)
	}
	if info.state == rerunLater {
		info.state = waiting // A shutdown that is under way drops it.
		return
	}
	q.mu.reruns--
	if info.line == keytable.None {
		q.joinLineLocked(s, info, info.priority, now)
	}
	q.becomeQueuedLocked(s, info)
}
