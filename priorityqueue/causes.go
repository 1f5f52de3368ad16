package priorityqueue

import (
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/notes"
)

// AddCause is Add that says why key needs processing. See [AddOpts].Cause.
func (q *Queue[T]) AddCause(key T, cause workqueue.Cause) {
	r := q.newRequest(AddOpts{Cause: &cause})
	q.add(key, &r)
}

// Causes returns, for a key that a worker holds, the causes of the adds that this hand-out answers, and for a queued or
// waiting key those so far. They are forgotten when the worker is Done.
func (q *Queue[T]) Causes(key T) workqueue.Causes {
	h := keytable.HashOf(key)
	q.lockAt(q.readClock(false))
	defer q.unlock()
	if s, it := q.findLocked(h, key); it != nil {
		if causes := q.causesLocked(s, it.state.snapshot()); causes != nil {
			return *causes
		}
	}
	return workqueue.Causes{}
}

// causesLocked returns the causes of the key at s, nil if there are none. A held key has those of its hand-out, and as a key
// that waits those of the next one.
func (q *Queue[T]) causesLocked(s keytable.Slot, in workqueue.KeyState) *workqueue.Causes {
	if !q.mu.keys.At(s).Value.noted {
		return nil
	}
	current, next := q.mu.notes.Causes(s)
	if in == workqueue.KeyProcessing {
		return current
	}
	return next
}

// addCauseLocked notes why the key at s was added.
func (q *Queue[T]) addCauseLocked(s keytable.Slot, it *item, cause *workqueue.Cause) {
	if cause.Reason != "" || cause.TraceParent != "" {
		q.mu.notes.AddCause(s, func(c workqueue.Causes) workqueue.Causes { return c.Plus(*cause) })
		it.noted = true
	}
}

// AddedAgain returns a channel that is closed when key, which the caller holds, is added again: when it is to be queued at
// the Done, at once or because its time has come, but not while it still waits for its time. If that has happened since the
// key was handed out, it is closed already. Adds with a Quiet cause do not count, unless they are merged with one that is not.
// After Done nothing closes it any more. For a key that no worker holds it is nil.
func (q *Queue[T]) AddedAgain(key T) <-chan struct{} {
	h := keytable.HashOf(key)
	q.lockAt(q.readClock(false))
	defer q.unlock()
	s, it := q.findLocked(h, key)
	switch {
	case it == nil || !it.state.isHeld():
		return nil
	case q.isInterruptedLocked(s, it):
		return notes.Closed
	}
	it.noted = true
	return q.mu.notes.Await(s)
}

// isInterruptedLocked reports whether the key at s is held, and to be queued when its worker is Done because of an add that
// was not quiet.
func (q *Queue[T]) isInterruptedLocked(s keytable.Slot, it *item) bool {
	return it.state == rerun && !q.mu.details.At(s).quiet
}

// interruptLocked closes the channel of AddedAgain for the key at s if it is time.
func (q *Queue[T]) interruptLocked(s keytable.Slot, it *item) {
	if it.noted && q.isInterruptedLocked(s, it) {
		q.mu.notes.Added(s)
	}
}
