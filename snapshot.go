package workqueue

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Snapshot is what is in a queue at one moment.
type Snapshot[T comparable] struct {
	Stats Stats `json:"stats"`
	// Processing leaves out keys on hold, and has the longest held first.
	Processing []KeySnapshot[T] `json:"processing"`
	// Queued has the next key first, or the oldest with a custom Queue.
	Queued []KeySnapshot[T] `json:"queued"`
	// Waiting has the next due first.
	Waiting []KeySnapshot[T] `json:"waiting"`
	// Failing has the first of FailingKeys. It is empty without Fail.
	Failing []KeySnapshot[T] `json:"failing"`
}

// KeyState is where a key is in its life.
type KeyState string

const (
	KeyQueued     KeyState = "queued"
	KeyWaiting    KeyState = "waiting"
	KeyProcessing KeyState = "processing"
)

// KeySnapshot is what a queue knows of a key.
type KeySnapshot[T comparable] struct {
	Key T `json:"key"`
	// State is empty for a key that is not in the queue.
	State KeyState `json:"state,omitempty"`
	// Since is when a queued key was added, a waiting one began to wait, or a held one was handed out. Without
	// metrics only waiting keys have it.
	Since time.Time `json:"since,omitzero"`
	// Due is when the key comes due. A queued or held key may have one besides.
	Due time.Time `json:"due,omitzero"`
	// Again reports that Done queues a held key again. OnHold is known in memory alone.
	Again  bool `json:"again,omitempty"`
	OnHold bool `json:"on_hold,omitempty"`
	// Requeues is what NumRequeues returns.
	Requeues int      `json:"requeues,omitempty"`
	Failures Failures `json:"failures,omitzero"`
	Priority int      `json:"priority,omitempty"`
	Group    string   `json:"group,omitempty"`
	// Blocked reports that a queued key's group is at its limit or paused.
	Blocked bool    `json:"blocked,omitempty"`
	Causes  *Causes `json:"causes,omitempty"`
}

// maxSnapshot is how many keys of a state Snapshot copies at most: no call may hold a lock for milliseconds.
const maxSnapshot = 512

// See [Extended]. Without metrics Snapshot looks through all keys for held ones, with a custom Queue for
// queued ones, and may miss the oldest.
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

// See [Extended].
func (q *Typed[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	return q.keysIn(func(sets) bool { return true })
}

// See [Extended].
func (q *Typed[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	if s, e := q.mu.keys.Find(h, key); e != nil {
		return q.snapshotLocked(s), true
	}
	return KeySnapshot[T]{Key: key}, false
}

// See [Extended].
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
