package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Done says that the caller is finished with an item from Get. If the item was added in the meantime, it is
// queued, or waits for the time that was asked for. Otherwise see [workqueue.Typed.Done].
func (q *Queue[T]) Done(item T) {
	now := q.readClockIfUsed()
	q.lockAndAdvance(now)
	defer q.unlock()
	if s := q.mu.lastTaken; s != keytable.None && q.mu.keys.At(s).Key == item {
		q.finishAtLocked(s, &q.mu.keys.At(s).Value, now)
		return
	}
	s, e := q.mu.keys.Find(keytable.HashOf(item), item)
	if e == nil || !e.Value.state.isHeld() {
		q.mu.unmatchedDones++
		return
	}
	q.finishAtLocked(s, &e.Value, now)
}

// finishAtLocked is Done of the held key at s.
func (q *Queue[T]) finishAtLocked(s keytable.Slot, it *item, now time.Duration) {
	if s == q.mu.lastTaken {
		q.mu.lastTaken = keytable.None
	}
	q.mu.held--
	if q.config.Group != nil {
		q.countHeldLocked(q.groupOfLocked(s), -1)
	}
	if q.observer != nil {
		q.observer.Finished(s, now)
	}
	if it.state == rerunLater && q.shuttingDown.Load() {
		q.cancelRerunLocked(s, it) // From here on it is processing.
		q.mu.dropped++
	}
	switch it.state {
	case processing:
		q.deleteLocked(s, it, now)
	case rerunLater:
		q.endHandOutLocked(s, it)
		it.state = waiting
	case rerun:
		q.endHandOutLocked(s, it)
		q.mu.reruns--
		if it.line == keytable.None {
			q.joinLineLocked(s, it, it.priority, now)
		}
		q.becomeQueuedLocked(s, it)
	}
}

// endHandOutLocked drops what was about the hand-out that ends. The key at s comes again.
func (q *Queue[T]) endHandOutLocked(s keytable.Slot, it *item) {
	it.priority = q.mu.details.At(s).rerunPriority
	if it.has(noted) {
		it.set(noted, q.mu.notes.Done(s))
	}
}
