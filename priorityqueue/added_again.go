package priorityqueue

import (
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/notes"
)

// A note begins with a cause or an AddedAgain. notes.Taken makes its next causes the current ones, notes.Done
// drops these and the channel. The note ends when no causes are left then, or when the key is deleted.

// AddedAgain is that of [workqueue.Extended]. An add counts when it lets the key be queued at the Done: not
// while the key has to wait. One with a Quiet cause counts only if it is merged with one that is not quiet.
func (q *Queue[T]) AddedAgain(key T) <-chan struct{} {
	h := keytable.HashOf(key)
	q.lockAndAdvance(q.readClockIfUsed())
	defer q.unlock()
	s, it := q.findLocked(h, key)
	switch {
	case it == nil || !it.state.isHeld():
		return nil
	case it.isInterrupted():
		return notes.Closed
	}
	it.set(noted, true)
	return q.mu.notes.Await(s)
}

// isInterrupted reports whether the key is to be queued at its Done because of an add that was not quiet.
func (it *item) isInterrupted() bool { return it.state == rerun && !it.has(quiet) }

// staysQuiet reports whether the held key is quiet after the add r: quiet until one add is not.
func (it *item) staysQuiet(r *request) bool {
	return r.Cause != nil && r.Cause.Quiet && (it.has(quiet) || it.state == processing)
}

// interruptLocked closes the channel of AddedAgain for the key at s if it is time.
func (q *Queue[T]) interruptLocked(s keytable.Slot, it *item) {
	if it.has(noted) && it.isInterrupted() {
		q.mu.notes.Added(s)
	}
}
