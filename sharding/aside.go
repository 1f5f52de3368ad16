package sharding

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// asideKey is a key that came out of the queue below while its slot was stopping, as it came. It counts and
// is shown as queued. If the slot stays, it is added again.
type asideKey struct {
	priority int
	causes   workqueue.Causes
	addedAt  time.Time // zero if the queue does not know
}

// keepAside keeps a key that the caller holds in case that its slot stays. If the key is aside already, it
// gets the higher priority and all causes. keepAside returns false if the slot is not stopping.
func (q *queue[T]) keepAside(slot int, key T) bool {
	k := asideKey{causes: q.Causes(key), addedAt: q.AddedAt(key)}
	if q.operable != nil {
		k.priority = q.operable.PriorityOf(key)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member.state(slot) != stopping {
		return false
	}
	if q.mu.aside[slot] == nil {
		q.mu.aside[slot] = make(map[T]asideKey)
	}
	if before, ok := q.mu.aside[slot][key]; ok {
		for _, cause := range k.causes.Last {
			before.causes = before.causes.Plus(cause)
		}
		k = asideKey{max(k.priority, before.priority), before.causes, before.addedAt}
	}
	q.mu.aside[slot][key] = k
	return true
}

// noLongerStopping adds the keys that are aside of slots that stay, and drops those of slots that have moved.
func (q *queue[T]) noLongerStopping(slots []int) {
	for _, slot := range slots {
		keys := q.takeAside(slot)
		isHeld := q.member.state(slot) != absent
		for key, k := range keys {
			if !isHeld {
				q.Forget(key)
				continue
			}
			for _, cause := range k.causes.Last {
				q.ExtendedRateLimiting.AddCause(key, cause)
			}
			if k.causes.IsZero() || k.priority != 0 {
				q.add(key, k.priority)
			}
		}
	}
}

// takeAside returns the keys of the slot that are aside, unless it is stopping again, and forgets them.
func (q *queue[T]) takeAside(slot int) map[T]asideKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member.state(slot) == stopping {
		return nil
	}
	keys := q.mu.aside[slot]
	delete(q.mu.aside, slot)
	return keys
}

// asideOf returns what is known of a key that is aside.
func (q *queue[T]) asideOf(key T) (k asideKey, found bool) {
	slot := q.slotOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	k, found = q.mu.aside[slot][key]
	return k, found
}

// removeAside forgets a key that is aside, and reports whether it was.
func (q *queue[T]) removeAside(key T) bool {
	slot := q.slotOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	_, found := q.mu.aside[slot][key]
	delete(q.mu.aside[slot], key)
	return found
}

func (q *queue[T]) countAside() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, keys := range q.mu.aside {
		n += len(keys)
	}
	return n
}

// allAside returns the keys that are aside, the oldest first.
func (q *queue[T]) allAside() (keys []workqueue.KeySnapshot[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ofSlot := range q.mu.aside {
		for key, k := range ofSlot {
			keys = append(keys, showAside(key, k))
		}
	}
	slices.SortFunc(keys, func(a, b workqueue.KeySnapshot[T]) int { return a.Since.Compare(b.Since) })
	return keys
}

func showAside[T comparable](key T, k asideKey) workqueue.KeySnapshot[T] {
	s := workqueue.KeySnapshot[T]{
		Key: key, State: workqueue.KeyQueued, Since: k.addedAt, Priority: k.priority, Blocked: true}
	if !k.causes.IsZero() {
		s.Causes = &k.causes
	}
	return s
}

func (q *queue[T]) Len() int { return q.ExtendedRateLimiting.Len() + q.countAside() }

func (q *queue[T]) Stats() workqueue.Stats { return q.countIn(q.ExtendedRateLimiting.Stats()) }

// countIn counts the keys that are aside as queued and blocked.
func (q *queue[T]) countIn(st workqueue.Stats) workqueue.Stats {
	n := q.countAside()
	st.Queued, st.Blocked = st.Queued+n, st.Blocked+n
	return st
}

func (q *queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	s := q.ExtendedRateLimiting.Snapshot(limit)
	s.Stats = q.countIn(s.Stats)
	aside := q.allAside()
	s.Queued = append(s.Queued, aside[:min(len(aside), max(0, min(limit, 512)-len(s.Queued)))]...)
	return s
}

// SnapshotKey shows a key that is aside as queued and blocked, unless it is being handled as well.
func (q *queue[T]) SnapshotKey(key T) (workqueue.KeySnapshot[T], bool) {
	s, found := q.ExtendedRateLimiting.SnapshotKey(key)
	k, isAside := q.asideOf(key)
	if !isAside || found && s.State == workqueue.KeyProcessing {
		return s, found
	}
	shown := showAside(key, k)
	shown.Due, shown.Requeues, shown.Failures, shown.Group = s.Due, s.Requeues, s.Failures, s.Group
	return shown, true
}

func (q *queue[T]) SnapshotKeys() iter.Seq[workqueue.KeySnapshot[T]] {
	return func(yield func(workqueue.KeySnapshot[T]) bool) {
		for s := range q.ExtendedRateLimiting.SnapshotKeys() {
			if !yield(s) {
				return
			}
		}
		for _, s := range q.allAside() {
			if !yield(s) {
				return
			}
		}
	}
}

// DropQueued drops the keys that are aside, too.
func (q *queue[T]) DropQueued() []T {
	keys := q.ExtendedRateLimiting.DropQueued()
	if !q.ShuttingDown() {
		return keys
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ofSlot := range q.mu.aside {
		for key := range ofSlot {
			keys = append(keys, key)
		}
	}
	clear(q.mu.aside)
	return keys
}
