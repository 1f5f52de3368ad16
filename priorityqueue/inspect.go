package priorityqueue

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"github.com/keyedqueue/workqueue/operate"
)

type snapshots[T comparable] = []workqueue.KeySnapshot[T]

// PriorityOf returns the priority with which key was handed out, if a worker holds it, and with which it will
// be handed out otherwise. It is 0 if key is not in the queue.
func (q *Queue[T]) PriorityOf(key T) (priority int) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	q.advanceLocked()
	if _, info := q.findLocked(h, key); info != nil {
		priority = info.priority
	}
	return priority
}

// See [workqueue.Extended]. Stats and the queued and waiting keys are of one moment, and with metrics the
// held ones too. Without metrics it looks through the keys, a few hundred under one lock, until it has found
// limit held ones or all.
//
// Queued keys come by priority and age. In a queue with groups, keys of blocked groups come last, and those
// of one priority take turns regardless of weights or, with Aging, come by age.
func (q *Queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	limit = min(max(limit, 0), maxPerLock)
	snap := q.copyFirst(limit)
	snap.Stats.Failing = q.failures.Len()
	if q.observer == nil {
		held := inSteps(q, func(keys snapshots[T], s keytable.Slot) snapshots[T] {
			if info := &q.mu.keys.At(s).Value; info.state.isHeld() && !info.onHold {
				keys = append(keys, q.snapshotLocked(s, false))
			}
			return keys
		})
		running := snap.Stats.Processing - snap.Stats.OnHold
		snap.Processing = slices.Collect(keytable.Take(min(limit, running), held))
	}
	for _, keys := range []snapshots[T]{snap.Processing, snap.Queued, snap.Waiting} {
		for i := range keys {
			keys[i] = q.withFailures(keys[i])
		}
	}
	snap.Failing = q.FailingKeys(limit)
	return snap
}

// copyFirst returns Stats and the first limit keys of the states whose keys the queue has in order.
func (q *Queue[T]) copyFirst(limit int) (snap workqueue.Snapshot[T]) {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceLocked()
	snap.Stats = q.statsLocked(now)
	snap.Queued = make(snapshots[T], 0, min(limit, q.mu.queued))
	snap.Queued = q.appendLinesLocked(snap.Queued, &q.mu.order, limit)
	snap.Queued = q.appendLinesLocked(snap.Queued, &q.mu.blocked, limit)
	for e := range keytable.Take(limit, q.mu.due.InOrder()) {
		snap.Waiting = append(snap.Waiting, q.snapshotLocked(e.Slot, true))
	}
	if q.observer != nil {
		for s := range keytable.Take(limit, q.observer.Running()) {
			snap.Processing = append(snap.Processing, q.snapshotLocked(s, false))
		}
	}
	return snap
}

// appendLinesLocked appends the queued keys of the lines of a heap, until there are limit keys. It merges the
// lines by the ranks of their heads: when a line's first key is copied, the second one is its head.
func (q *Queue[T]) appendLinesLocked(keys snapshots[T], lines *slotheap.Heap, limit int) snapshots[T] {
	var heads slotheap.Heap
	next := map[keytable.Slot]keytable.Slot{} // the next key of each line
	for e := range lines.InOrder() {
		if heads.Len() == limit-len(keys) { // The heads of further lines would come after these.
			break
		}
		heads.Push(e)
		next[e.Slot] = q.firstQueuedLocked(&q.mu.lines.At(e.Slot).Value)
	}
	for len(keys) < limit && heads.Len() > 0 {
		e := heads.Pop()
		s := next[e.Slot]
		keys = append(keys, q.snapshotLocked(s, false))
		if s = q.queuedFromLocked(q.mu.lists.Next(s)); s != keytable.None {
			next[e.Slot] = s
			again := q.entryLocked(e.Slot, s)
			if q.config.Aging == 0 {
				again.Tie = e.Tie + 1 // A group whose key was copied comes after the others of its priority.
			}
			heads.Push(again)
		}
	}
	return keys
}

// See [workqueue.Extended].
func (q *Queue[T]) AddedAt(key T) (at time.Time) {
	if q.observer == nil {
		return at
	}
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	if s, info := q.findLocked(h, key); info != nil && info.state.isHeld() {
		at = q.cameAtLocked(s)
	}
	return at
}

// cameAtLocked returns when the key at s, which a worker holds, was first added. It is zero without metrics.
func (q *Queue[T]) cameAtLocked(s keytable.Slot) (at time.Time) {
	if q.observer != nil {
		at = q.loop.Time(q.observer.CameAt(s))
	}
	return at
}

// See [workqueue.Extended]. It takes constant time.
func (q *Queue[T]) SnapshotKey(key T) (k workqueue.KeySnapshot[T], found bool) {
	k, found = q.snapshotKey(key)
	return q.withFailures(k), found
}

func (q *Queue[T]) snapshotKey(key T) (k workqueue.KeySnapshot[T], found bool) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	q.advanceLocked()
	s, info := q.findLocked(h, key)
	if info == nil {
		return workqueue.KeySnapshot[T]{Key: key}, false
	}
	k = q.snapshotLocked(s, false)
	if info.state == rerunLater {
		k.Due = q.loop.Time(q.dueAtLocked(s))
	}
	return k, true
}

// See [workqueue.Extended]. A held key that waits for a time is yielded as Processing and as Waiting.
func (q *Queue[T]) SnapshotKeys() iter.Seq[workqueue.KeySnapshot[T]] {
	all := inSteps(q, func(keys snapshots[T], s keytable.Slot) snapshots[T] {
		keys = append(keys, q.snapshotLocked(s, false))
		if q.mu.keys.At(s).Value.state == rerunLater {
			keys = append(keys, q.snapshotLocked(s, true))
		}
		return keys
	})
	return keytable.Map(all, q.withFailures)
}

// snapshotLocked returns what is known of the key at s, except its failures. A held key that is queued again
// is shown with the priority of its next hand-out and, if asWaiting is set, as the waiting key that it is
// too.
func (q *Queue[T]) snapshotLocked(s keytable.Slot, asWaiting bool) workqueue.KeySnapshot[T] {
	e := q.mu.keys.At(s)
	info := &e.Value
	again := info.state == rerun || info.state == rerunLater
	k := workqueue.KeySnapshot[T]{Key: e.Key, State: workqueue.KeyQueued, Priority: info.priority}
	if again {
		k.Priority = q.mu.details.At(s).nextPriority
	}
	var currentCauses *workqueue.Causes
	if info.noted {
		currentCauses, k.Causes = q.mu.notes.Causes(s)
	}
	if q.config.Group != nil {
		g := q.mu.groups.At(q.groupOfLocked(s))
		k.Group, k.Blocked = g.Key, info.state == queued && g.Value.blocked
	}
	switch {
	case asWaiting || info.state == waiting:
		k.State, k.Due = workqueue.KeyWaiting, q.loop.Time(q.dueAtLocked(s))
		k.Since = q.loop.Time(q.mu.details.At(s).addedAt)
	case info.state.isHeld():
		k.State, k.Causes, k.OnHold = workqueue.KeyProcessing, currentCauses, info.onHold
		k.Again = info.state == rerun || again && !q.shuttingDown.Load() // A shutdown drops what waits for a time.
		if q.observer != nil {
			k.Since = q.loop.Time(q.observer.StartedAt(s))
		}
	case q.observer != nil:
		k.Since = q.loop.Time(q.observer.AddedAt(s))
	}
	return k
}

// withFailures returns k with what is known of its failures.
func (q *Queue[T]) withFailures(k workqueue.KeySnapshot[T]) workqueue.KeySnapshot[T] {
	k.Failures, k.Requeues = q.Failures(k.Key), q.NumRequeues(k.Key)
	return k
}

// inSteps yields what appendLocked appends for each slot of a key in the queue. It takes the lock for a few
// hundred keys at a time, and holds none while it yields them.
func inSteps[T comparable, R any](q *Queue[T], appendLocked func([]R, keytable.Slot) []R) iter.Seq[R] {
	lock := func() { q.mu.Lock(); q.advanceLocked() }
	return keytable.InSteps(&q.mu.keys, lock, q.unlock, func(all []R, s keytable.Slot) []R {
		if q.mu.keys.At(s).Value.state == resting {
			return all
		}
		return appendLocked(all, s)
	})
}

// GivenUpKeys returns nil: the queue keeps no keys that are given up. RetryGivenUp and ForgetGivenUp return
// false.
func (q *Queue[T]) GivenUpKeys(int) []operate.GivenUpKey[T] { return nil }
func (q *Queue[T]) RetryGivenUp(T) bool                     { return false }
func (q *Queue[T]) ForgetGivenUp(T) bool                    { return false }
