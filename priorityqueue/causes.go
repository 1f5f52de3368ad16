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

// Causes is that of [workqueue.CauseAdder]. A waiting key has the causes so far, as a queued one.
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

// causesLocked returns the causes of the key at s, nil if there are none. A held key has those of its hand-out, and as
// a key that waits those of the next one.
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

// AddedAgain is that of [workqueue.AddNotifier]. An add counts when it lets the key be queued at the Done: not while
// the key still has to wait. One with a Quiet cause does not count, unless it is merged with one that is not.
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

// isInterruptedLocked reports whether the key at s is to be queued at its Done because of an add that was not quiet.
func (q *Queue[T]) isInterruptedLocked(s keytable.Slot, it *item) bool {
	return it.state == rerun && !q.mu.details.At(s).quiet
}

// interruptLocked closes the channel of AddedAgain for the key at s if it is time.
func (q *Queue[T]) interruptLocked(s keytable.Slot, it *item) {
	if it.noted && q.isInterruptedLocked(s, it) {
		q.mu.notes.Added(s)
	}
}
