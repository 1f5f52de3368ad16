package workqueue

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Snapshot shows people what is in a queue at one moment. It holds copies: keeping it does not harm the
// queue. Each list has at most 512 keys; SnapshotKeys of [Extended] yields the others.
type Snapshot[T comparable] struct {
	// Stats are those of the same moment, or nearly so. They count all keys.
	Stats Stats
	// Processing are keys that workers hold: the one that has been held for longest first.
	Processing []KeySnapshot[T]
	// Queued are keys that wait for a worker: the next one first, or the oldest with a custom Queue.
	Queued []KeySnapshot[T]
	// Waiting are keys that wait for their time: the next one that is due first.
	Waiting []KeySnapshot[T]
	// Failing are keys of any state whose failures the queue or its limiter has counted, the most first.
	Failing []KeySnapshot[T]
	// FailingUnlisted reports that Failing lacks keys that were added by AddRateLimited alone, because a limiter
	// is not a [RequeueLister], as those of client-go.
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
	// State is where the key is in its life. It is empty for a key that is not in the queue.
	State KeyState
	// Since is when a worker got the key, when it was queued, or when it began to wait. It is zero for a key
	// that is just moving from waiting to queued and, without metrics, for all but waiting keys.
	Since time.Time
	// Due is when the time of a waiting key comes, and zero for other keys. If the wall clock has been set since
	// the queue was made or its first key began to wait, Since and Due are off by as much.
	Due time.Time
	// Again reports that a key that is being processed was added meanwhile, so that it comes again.
	Again bool
	// Requeues is the number of failures in a row: those that Fail has counted, or the limiter if that is more.
	Requeues int
	// Priority and Group are those of the key, in a queue that has such.
	Priority int
	Group    string
	// Blocked reports that a queued key cannot be handed out, because its group is at its limit or paused.
	Blocked bool
	// Causes are those of [Extended], nil if there are none.
	Causes *Causes
}

// maxSnapshot is how many keys of a state Snapshot copies at most: no call may hold a lock for milliseconds.
const maxSnapshot = 512

// Snapshot returns Stats and copies of up to limit keys of each state, at most 512 of each, as they are at
// one moment. Ten keys of a million cost no more than ten of ten.
//
// A queue without metrics looks through all keys for those that are being processed, and a queue with a
// custom Queue for those that are queued, with the lock given back every few hundred keys. The first that it
// finds need not be the oldest.
func (q *Typed[T]) Snapshot(limit int) Snapshot[T] {
	limit = min(max(limit, 0), maxSnapshot)
	s := q.copyLists(limit)
	if q.observer == nil {
		isProcessing := func(in sets) bool { return in&processing != 0 }
		s.Processing = slices.Collect(keytable.Take(min(limit, s.Stats.Processing), q.keysIn(isProcessing)))
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
	defer q.mu.Unlock()
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
	return keytable.InSteps(&q.mu.keys, q.mu.Lock, q.mu.Unlock, add)
}

// SnapshotKeys yields the keys of every state, a few hundred under one lock: see [Extended].
func (q *Typed[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	return q.keysIn(func(sets) bool { return true })
}

// SnapshotKey returns what the queue knows of key, in constant time.
func (q *Typed[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, e := q.mu.keys.Find(h, key); e != nil {
		return q.snapshotLocked(s), true
	}
	return KeySnapshot[T]{Key: key}, false
}

// AddedAt returns when key, which a worker holds, was first added before it was handed out.
func (q *Typed[T]) AddedAt(key T) (at time.Time) {
	if q.observer == nil {
		return at
	}
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, e := q.mu.keys.Find(h, key); e != nil && e.Value&processing != 0 {
		at = q.observer.Time(q.observer.CameAt(s))
	}
	return at
}

func (q *Typed[T]) snapshotLocked(s keytable.Slot) KeySnapshot[T] {
	k := q.mu.keys.At(s)
	c := KeySnapshot[T]{Key: k.Key, State: KeyQueued, Causes: q.causesLocked(s, k)}
	if k.Value&processing != 0 {
		c.State, c.Again = KeyProcessing, k.Value&dirty != 0
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

func (q *delayingType[T]) Snapshot(limit int) Snapshot[T] {
	// In this order, a key that comes due meanwhile may be listed twice.
	waiting := q.copyWaiting(min(max(limit, 0), maxSnapshot))
	s := q.Extended.Snapshot(limit)
	s.Waiting = append(waiting, s.Waiting...)
	n, _ := q.numWaiting()
	s.Stats.Waiting += max(n, len(waiting))
	q.addStats(&s.Stats)
	return s
}

// copyWaiting returns up to limit of the keys that wait, the one that is due first first.
func (q *delayingType[T]) copyWaiting(limit int) (keys []KeySnapshot[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := range keytable.Take(limit, q.mu.waiting.order.InOrder()) {
		keys = append(keys, q.snapshotWaitingLocked(e.Slot))
	}
	return keys
}

// SnapshotKeys yields the keys that wait, and those of the queue below.
func (q *delayingType[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	add := func(keys []KeySnapshot[T], s keytable.Slot) []KeySnapshot[T] {
		return append(keys, q.snapshotWaitingLocked(s))
	}
	waiting := keytable.InSteps(&q.mu.waiting.keys, q.mu.Lock, q.mu.Unlock, add)
	return func(yield func(KeySnapshot[T]) bool) {
		for _, keys := range []iter.Seq[KeySnapshot[T]]{waiting, q.Extended.SnapshotKeys()} {
			for k := range keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func (q *delayingType[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	above, waits := q.snapshotWaiting(key) // First: meanwhile the key may move to the queue below.
	if k, found = q.Extended.SnapshotKey(key); !found {
		above.Causes = k.Causes
		return above, waits
	}
	k.Due = above.Due
	return k, true
}

// snapshotWaiting returns what this layer knows of key. One on its way to the queue below counts as queued.
func (q *delayingType[T]) snapshotWaiting(key T) (k KeySnapshot[T], found bool) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, e := q.mu.waiting.keys.Find(h, key); e != nil {
		return q.snapshotWaitingLocked(s), true
	}
	k.Key = key
	if slices.ContainsFunc(q.mu.moving, func(m keytable.Hashed[T]) bool { return m.Key == key }) {
		k.State = KeyQueued
	}
	return k, k.State != ""
}

func (q *delayingType[T]) snapshotWaitingLocked(s keytable.Slot) KeySnapshot[T] {
	k := q.mu.waiting.keys.At(s)
	due := q.loop.Time(time.Duration(q.mu.waiting.order.At(s).Rank))
	return KeySnapshot[T]{Key: k.Key, State: KeyWaiting, Since: q.loop.Time(k.Value.Duration()), Due: due}
}

// Snapshot asks the limiter for the requeues of each key that it returns, and for the keys with the most. For
// the latter our limiters look at all keys that have failed, a few hundred under one lock.
func (q *rateLimitingType[T]) Snapshot(limit int) Snapshot[T] {
	s := q.Extended.Snapshot(limit)
	for _, keys := range [][]KeySnapshot[T]{s.Processing, s.Queued, s.Waiting} {
		for i := range keys {
			keys[i].Requeues = q.requeues(keys[i].Key)
		}
	}
	lists, complete := requeuedOf([]TypedRateLimiter[T]{q.rateLimiter})
	s.FailingUnlisted = !complete
	for _, failing := range failures.Most(min(max(limit, 0), maxSnapshot), q.failures.All(), lists) {
		k, _ := q.Extended.SnapshotKey(failing.Key)
		k.Requeues = failing.N
		s.Failing = append(s.Failing, k)
	}
	return s
}

// SnapshotKeys asks the limiter for the requeues of each key.
func (q *rateLimitingType[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	return keytable.Map(q.Extended.SnapshotKeys(), func(k KeySnapshot[T]) KeySnapshot[T] {
		k.Requeues = q.requeues(k.Key)
		return k
	})
}

// requeues returns the failures of key that Fail has counted, or the limiter if it has counted more.
func (q *rateLimitingType[T]) requeues(key T) int {
	n, _ := q.failures.Of(key)
	return max(n, q.rateLimiter.NumRequeues(key))
}

// SnapshotKey returns the requeues also of a key that is not in the queue.
func (q *rateLimitingType[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	k, found = q.Extended.SnapshotKey(key)
	k.Requeues = q.requeues(key)
	return k, found
}
