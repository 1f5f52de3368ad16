package workqueue

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Snapshot is what is in a queue at one moment: copies of at most 512 keys of each state.
type Snapshot[T comparable] struct {
	// Stats count all keys, at nearly the same moment.
	Stats Stats
	// Processing are held keys that are not on hold, the longest held first.
	Processing []KeySnapshot[T]
	// Queued are keys that wait for a worker, the next one first, or the oldest with a custom Queue.
	Queued []KeySnapshot[T]
	// Waiting are keys that wait for their time, the next due first.
	Waiting []KeySnapshot[T]
	// Failing are keys of any state with failures that the queue or its limiter has counted, the most first.
	Failing []KeySnapshot[T]
	// FailingUnlisted reports that Failing lacks keys that were added by AddRateLimited alone, because a
	// limiter is no [RequeueLister].
	FailingUnlisted bool
}

// KeyState is where a key is in its life.
type KeyState string

// The states of the keys in a queue.
const (
	KeyQueued     KeyState = "queued"     // is ready for a worker
	KeyWaiting    KeyState = "waiting"    // waits for its time
	KeyProcessing KeyState = "processing" // is held by a worker
)

// KeySnapshot is what a queue knows of a key.
type KeySnapshot[T comparable] struct {
	Key T
	// State is empty for a key that is not in the queue.
	State KeyState
	// Since is when a worker got the key, when it was queued, or when it began to wait. (In priorityqueue an
	// event moves that of a waiting key once.) It is zero for a key that is moving from waiting to queued and,
	// without metrics, for all but waiting keys.
	Since time.Time
	// Due is when a waiting key comes due. If the wall clock was set meanwhile, Since and Due are off by as
	// much.
	Due time.Time
	// Again reports that a held key was added meanwhile, so that Done queues it again. OnHold reports that it
	// is on hold; only queues in memory know.
	Again, OnHold bool
	// Requeues is the number of failures in a row: those that Fail has counted, or the limiter if that is more.
	Requeues int
	Failures Failures
	// Priority and Group are zero in a queue without such.
	Priority int
	Group    string
	// Blocked reports that a queued key cannot be handed out: its group is at its limit or paused.
	Blocked bool
	// Causes is nil if there are none.
	Causes *Causes
}

// maxSnapshot is how many keys of a state Snapshot copies at most: no call may hold a lock for milliseconds.
const maxSnapshot = 512

// Snapshot implements [Extended]. Its cost depends on limit alone, with two exceptions. A queue without
// metrics looks through all keys for held ones, and a queue with a custom Queue for queued ones: a few
// hundred under one lock, and the first that it finds need not be the oldest.
func (q *Typed[T]) Snapshot(limit int) Snapshot[T] {
	limit = min(max(limit, 0), maxSnapshot)
	s := q.copyLists(limit)
	if q.observer == nil {
		isRunning := func(in sets) bool { return in&(processing|onHold) == processing }
		running := s.Stats.Processing - s.Stats.OnHold
		s.Processing = slices.Collect(keytable.Take(min(limit, running), q.keysIn(isRunning)))
	}
	if q.custom != nil {
		isQueued := func(in sets) bool { return in&(dirty|processing) == dirty }
		s.Queued = slices.Collect(keytable.Take(min(limit, s.Stats.Queued), q.keysIn(isQueued)))
		slices.SortStableFunc(s.Queued, func(a, b KeySnapshot[T]) int { return a.Since.Compare(b.Since) })
	}
	return s
}

// copyLists returns Stats and up to limit keys of the states whose keys are in a list, under one lock.
func (q *Typed[T]) copyLists(limit int) (s Snapshot[T]) {
	q.mu.Lock()
	defer q.unlock()
	s.Stats = q.statsLocked()
	for slot := range keytable.Take(limit, q.mu.ready.all()) {
		s.Queued = append(s.Queued, q.snapshotLocked(slot))
	}
	if q.observer == nil {
		return s
	}
	for slot := range keytable.Take(limit, q.observer.Running()) {
		s.Processing = append(s.Processing, q.snapshotLocked(slot))
	}
	return s
}

// keysIn yields the keys that are in the wanted sets, in steps.
func (q *Typed[T]) keysIn(wanted func(sets) bool) iter.Seq[KeySnapshot[T]] {
	add := func(keys []KeySnapshot[T], s keytable.Slot) []KeySnapshot[T] {
		if wanted(q.mu.keys.At(s).Value) {
			keys = append(keys, q.snapshotLocked(s))
		}
		return keys
	}
	return keytable.InSteps(&q.mu.keys, q.mu.Lock, q.unlock, add)
}

// SnapshotKeys implements [Extended].
func (q *Typed[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	return q.keysIn(func(sets) bool { return true })
}

// SnapshotKey implements [Extended], in constant time.
func (q *Typed[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	if s, e := q.mu.keys.Find(h, key); e != nil {
		return q.snapshotLocked(s), true
	}
	return KeySnapshot[T]{Key: key}, false
}

// AddedAt implements [Extended].
func (q *Typed[T]) AddedAt(key T) (at time.Time) {
	if q.observer == nil {
		return at
	}
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	if s, e := q.mu.keys.Find(h, key); e != nil && e.Value&processing != 0 {
		at = q.cameAtLocked(s)
	}
	return at
}

// cameAtLocked returns when the key at s, which a worker holds, was first added. It is zero without metrics.
func (q *Typed[T]) cameAtLocked(s keytable.Slot) (at time.Time) {
	if q.observer != nil {
		at = q.observer.Time(q.observer.CameAt(s))
	}
	return at
}

func (q *Typed[T]) snapshotLocked(s keytable.Slot) KeySnapshot[T] {
	k := q.mu.keys.At(s)
	c := KeySnapshot[T]{Key: k.Key, State: KeyQueued, Causes: q.causesLocked(s, k)}
	if k.Value&processing != 0 {
		c.State, c.Again, c.OnHold = KeyProcessing, k.Value&dirty != 0, k.Value&onHold != 0
	}
	if q.observer != nil {
		since := q.observer.AddedAt(s)
		if c.State == KeyProcessing {
			since = q.observer.StartedAt(s)
		}
		c.Since = q.observer.Time(since)
	}
	return c
}
