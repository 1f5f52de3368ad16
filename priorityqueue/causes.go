package priorityqueue

import (
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// A note holds a key's causes and the channel that AddedAgain has returned: see package notes for when it
// ends. keyInfo.noted says that there is one.

// See [workqueue.Extended]. Waiting keys have causes as well.
func (q *Queue[T]) Causes(key T) (causes workqueue.Causes) {
	if k, _ := q.snapshotKey(key); k.Causes != nil {
		causes = *k.Causes
	}
	return causes
}

// See [workqueue.Extended]. An add for a later time closes the channel when its time comes.
func (q *Queue[T]) AddedAgain(key T) <-chan struct{} {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	q.advanceLocked()
	s, info := q.findLocked(h, key)
	if info == nil || !info.state.isHeld() {
		return nil
	}
	info.noted = true
	c := q.mu.notes.Await(s)
	q.interruptLocked(s, info)
	return c
}

// interruptLocked closes the channel of AddedAgain for the key at s if the key is to be queued at its Done
// because of an add that was not quiet.
func (q *Queue[T]) interruptLocked(s keytable.Slot, info *keyInfo) {
	if info.noted && info.state == rerun && !q.mu.details.At(s).quiet {
		q.mu.notes.Added(s)
	}
}
