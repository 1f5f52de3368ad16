package workqueue

import (
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// Snapshot is what a queue has at one moment, for people who want to know what it is doing. It holds
// copies: keeping it does not harm the queue.
type Snapshot[T comparable] struct {
	// Stats are those of the same moment, or nearly so. They count all keys, also those that the lists
	// below leave out.
	Stats Stats
	// Processing are keys that workers hold: the one that is held for the longest time first.
	Processing []KeySnapshot[T]
	// Queued are keys that wait for a worker: the next one first or, in a queue with an order of the
	// user's, the one that was added first.
	Queued []KeySnapshot[T]
	// Waiting are keys that wait for their time: the next one that is due first.
	Waiting []KeySnapshot[T]
	// Failing are keys that the limiter has counted failures of, in whatever state they are: the one with
	// the most first. Only those of a [RequeueLister] are known. Since and Due are set for those that wait
	// for a time that has not come yet.
	Failing []KeySnapshot[T]
}

// KeySnapshot is what a queue knows of a key.
type KeySnapshot[T comparable] struct {
	Key T
	// Since is when a worker got the key, when it was queued, or when it began to wait. In a queue
	// without metrics, which reads the clock only where it must, it is zero but for waiting keys.
	Since time.Time
	// Due is when the time of a waiting key comes, and zero for the others. Like Since it is counted from
	// when the queue was made: where the wall clock has been set since then, both are off by as much.
	Due time.Time
	// Again tells that a key that is being processed was added meanwhile, so that it comes again.
	Again bool
	// Requeues is the number of failures that the limiter remembers, zero in a queue that has none.
	Requeues int
}

// Snapshot copies up to limit keys of each state, and tells what [Stats] does. It holds the lock for no
// longer than it takes to copy them: of a million keys, ten cost no more than of ten.
//
// There are two exceptions, in which it looks at all keys, some hundred at a time with the lock given
// back in between: for those that are processed in a queue without metrics, and for those that are queued
// in a queue with an order of the user's. Then it takes the first ones that it meets.
func (q *Typed[T]) Snapshot(limit int) Snapshot[T] {
	limit = max(limit, 0)
	var s Snapshot[T]
	stats := q.Stats()
	s.Processing = make([]KeySnapshot[T], 0, min(limit, stats.Processing))
	s.Queued = make([]KeySnapshot[T], 0, min(limit, stats.Queued))
	q.copyInOrder(&s)
	if q.observer == nil {
		s.Processing = q.scan(s.Processing, func(k keyState) bool { return k&processing != 0 })
	}
	if q.order != nil {
		s.Queued = q.scan(s.Queued, func(k keyState) bool { return k == dirty })
		slices.SortStableFunc(s.Queued, func(a, b KeySnapshot[T]) int { return a.Since.Compare(b.Since) })
	}
	return s
}

// copyInOrder fills s from those lists that q has in the right order, up to the capacity of the slices.
func (q *Typed[T]) copyInOrder(s *Snapshot[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Stats = q.statsLocked()
	for i := range min(q.ready.n, cap(s.Queued)) {
		s.Queued = append(s.Queued, q.snapshotLocked(q.ready.at(i)))
	}
	if q.observer == nil {
		return
	}
	for slot := range q.observer.Running() {
		if len(s.Processing) == cap(s.Processing) {
			break
		}
		s.Processing = append(s.Processing, q.snapshotLocked(slot))
	}
}

func (q *Typed[T]) snapshotLocked(s keytable.Slot) KeySnapshot[T] {
	k := q.keys.At(s)
	c := KeySnapshot[T]{Key: k.Key, Again: k.Value == dirty|processing}
	if q.observer != nil {
		if k.Value&processing != 0 {
			c.Since = q.observer.Time(q.observer.StartedAt(s))
		} else {
			c.Since = q.observer.Time(q.observer.AddedAt(s))
		}
	}
	return c
}

// scan appends the keys in a state that is wanted, up to the capacity of keys.
func (q *Typed[T]) scan(keys []KeySnapshot[T], wanted func(keyState) bool) []KeySnapshot[T] {
	scanSlab := func(n int) bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		for slot, k := range q.keys.Slab(n) {
			if len(keys) == cap(keys) {
				return false
			}
			if wanted(k.Value) {
				keys = append(keys, q.snapshotLocked(slot))
			}
		}
		return n+1 < q.keys.Slabs()
	}
	for n := 0; scanSlab(n); n++ {
	}
	return keys
}

// Snapshot copies up to limit keys of each state, and tells what [Stats] does. It holds the lock for
// about as long as it takes to copy them.
func (q *delayingType[T]) Snapshot(limit int) Snapshot[T] {
	// In this order, a key that comes due meanwhile may be seen twice.
	waiting := q.copyWaiting(max(limit, 0))
	s := q.Extended.Snapshot(limit)
	s.Waiting = append(waiting, s.Waiting...)
	q.addStats(&s.Stats, len(waiting))
	return s
}

func (q *delayingType[T]) copyWaiting(limit int) []KeySnapshot[T] {
	keys := make([]KeySnapshot[T], 0, min(limit, q.numWaiting()))
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := range q.waiting.inOrder() {
		if len(keys) == cap(keys) {
			break
		}
		keys = append(keys, q.waiting.snapshot(e))
	}
	return keys
}

func (h *dueHeap[T]) snapshot(e slotheap.Entry[uint32]) KeySnapshot[T] {
	k := h.keys.At(e.Slot)
	return KeySnapshot[T]{
		Key:   k.Key,
		Since: h.epoch.Add(k.Value.duration()),
		Due:   h.epoch.Add(time.Duration(e.Rank)),
	}
}

// Snapshot copies up to limit keys of each state, and tells what [Stats] does. It asks the limiter for
// the requeues of each of them, and for those with the most, for which our limiters look at all keys that
// have failed, some hundred at a time with the lock given back in between.
func (q *rateLimitingType[T]) Snapshot(limit int) Snapshot[T] {
	s := q.Extended.Snapshot(limit)
	for _, keys := range [][]KeySnapshot[T]{s.Processing, s.Queued, s.Waiting} {
		for i := range keys {
			keys[i].Requeues = q.rateLimiter.NumRequeues(keys[i].Key)
		}
	}
	s.Failing = mostRequeuedOf(q.rateLimiter, max(limit, 0))
	if below, ok := q.delaying.(waitingInspector[T]); ok {
		for i := range s.Failing {
			if k, waits := below.inspectWaiting(s.Failing[i].Key); waits {
				s.Failing[i].Since, s.Failing[i].Due = k.Since, k.Due
			}
		}
	}
	return s
}

// waitingInspector is a delaying queue that can look up when one waiting key is due.
type waitingInspector[T comparable] interface {
	inspectWaiting(key T) (k KeySnapshot[T], waits bool)
}

// Snapshot has only the Stats of the queue below.
func (e *extension[T]) Snapshot(int) Snapshot[T] { return Snapshot[T]{Stats: e.Stats()} }
