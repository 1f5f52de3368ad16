package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// See [workqueue.Extended].
func (q *Queue[T]) PutOnHold(key T) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceLocked()
	s, info := q.findLocked(h, key)
	if info == nil || !info.state.isHeld() || info.onHold {
		return
	}
	q.setOnHoldLocked(s, info, true)
	if q.observer != nil {
		q.observer.Finished(s, now)
	}
}

// setOnHoldLocked notes that the key at s, which a worker holds, is on hold, or is so no more. A key on hold
// that was added again counts neither in Stats.Again nor in a depth.
func (q *Queue[T]) setOnHoldLocked(s keytable.Slot, info *keyInfo, is bool) {
	n := 1
	if !is {
		n = -1
	}
	q.mu.onHold += n
	info.onHold = is
	if info.state == rerun {
		if info.line != keytable.None {
			q.leaveLineLocked(s, info)
		}
		q.mu.rerunsOnHold += n
		q.mu.depths.add(*q.nextPriorityLocked(s, info), -n)
	}
}

// countDepthLocked counts a key in the depth of its priority, or with -1 takes it out, unless it is on hold.
func (q *Queue[T]) countDepthLocked(info *keyInfo, priority, n int) {
	if !info.onHold {
		q.mu.depths.add(priority, n)
	}
}
