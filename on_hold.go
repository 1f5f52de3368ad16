package workqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// See [Extended].
func (q *Typed[T]) PutOnHold(key T) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	s, k := q.mu.keys.Find(h, key)
	if k == nil || k.Value&(processing|onHold) != processing {
		return
	}
	k.Value |= onHold
	q.countOnHoldLocked(k, 1)
	q.observeFinishedLocked(s)
}

// observeFinishedLocked counts the work on the key at s, unless that is counted already.
func (q *Typed[T]) observeFinishedLocked(s keytable.Slot) {
	if q.observer == nil {
		return
	}
	q.observer.Finished(s, q.observer.Now())
	if q.shuttingDown.Load() {
		q.observer.RefreshLast()
	}
}

// countOnHoldLocked counts that the key of k has been put on hold or, with -1, that it is Done.
func (q *Typed[T]) countOnHoldLocked(k *entry[T], n int) {
	q.mu.onHold += n
	if k.Value&dirty != 0 {
		q.mu.againOnHold += n
	}
}
