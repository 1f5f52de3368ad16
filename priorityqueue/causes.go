package priorityqueue

import (
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/notes"
)

// A note holds a key's causes and the channel that AddedAgain has returned: see package notes for when it
// ends. The flag noted says that there is one.

// Causes returns why key was added: of a held key until its hand-out, of a queued or waiting key so far. They
// are empty for any other key, and for one that was added without a cause.
func (q *Queue[T]) Causes(key T) (causes workqueue.Causes) {
	if k, _ := q.snapshotKey(key); k.Causes != nil {
		causes = *k.Causes
	}
	return causes
}

// AddedAgain returns a channel that is closed as soon as the key, which a worker holds, would be queued at
// its Done: at once, or when the time comes that an add has asked for. Adds with a Quiet cause alone do not
// close it. See [workqueue.Extended].
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

// staysQuiet reports whether all adds since the hand-out are quiet, with the add r. It must be called before
// r changes the state: a key that is processing has had no add.
func (it *item) staysQuiet(r *request) bool {
	return r.Cause != nil && r.Cause.Quiet && (it.has(quiet) || it.state == processing)
}

// interruptLocked closes the channel of AddedAgain for the key at s if it is time.
func (q *Queue[T]) interruptLocked(s keytable.Slot, it *item) {
	if it.has(noted) && it.isInterrupted() {
		q.mu.notes.Added(s)
	}
}
