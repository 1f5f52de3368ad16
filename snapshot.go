package workqueue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Snapshot shows people what is in a queue at one moment. It holds copies: keeping it does not harm the queue.
type Snapshot[T comparable] struct {
	// Stats are those of the same moment, or nearly so. They count all keys, also those that the lists
	// below leave out.
	Stats Stats
	// Processing are keys that workers hold: the one that has been held for longest first.
	Processing []KeySnapshot[T]
	// Queued are keys that wait for a worker: the next one first or, in a queue with a custom Queue, the one that
	// was added first.
	Queued []KeySnapshot[T]
	// Waiting are keys that wait for their time: the next one that is due first.
	Waiting []KeySnapshot[T]
	// Failing are keys whose failures the limiter has counted, in whatever state they are: the one with
	// the most failures first. Since and Due are set for keys that wait for their time.
	Failing []KeySnapshot[T]
	// FailingUnlisted reports that Failing is empty because the limiter is not a [RequeueLister], as those of client-go.
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
	// Since is when a worker got the key, when it was queued, or when it began to wait. A queue
	// without metrics knows it only of waiting keys, because it reads the clock only where it must; of others it is
	// zero.
	Since time.Time
	// Due is when the time of a waiting key comes, and zero for other keys. Since and Due count from readings of
	// the clock when the queue was made or its first key began to wait: if the wall clock has been set since then,
	// both are off by as much.
	Due time.Time
	// Again reports that a key that is being processed was added meanwhile, so that it comes again.
	Again bool
	// Requeues is the number of failures that the limiter remembers, zero in a queue without a limiter.
	Requeues int
	// Priority and Group are those of the key, in a queue that has such.
	Priority int
	Group    string
	// Blocked reports that a queued key cannot be handed out, because its group is at its limit.
	Blocked bool
}

// fewKeys is how many keys of a state Snapshot copies under one lock. No call may make others wait for milliseconds, so
// a higher limit takes the lock again for every few hundred keys, and sorts what it found without the lock.
const fewKeys = 512

// Snapshot returns Stats and copies of up to limit keys of each state. Up to 512 keys of a state are copied as they
// are at one moment, and ten keys of a million cost no more than ten of ten. A higher limit takes O(n log n) for n
// keys, and gives the lock back every few hundred keys: then a key that moves meanwhile may be listed twice, or not
// at all.
//
// A queue without metrics looks through all keys for those that are being processed, and a queue with a custom Queue
// for those that are queued. It then returns the first ones that it finds, which need not be the oldest.
func (q *Typed[T]) Snapshot(limit int) Snapshot[T] {
	limit = max(limit, 0)
	s := q.copyFew(min(limit, fewKeys))
	if q.custom != nil {
		s.Queued = q.scan(limit, func(k keyState) bool { return k == dirty })
		sortBySince(s.Queued)
	} else if limit > fewKeys && s.Stats.Queued > fewKeys {
		s.Queued = q.copyQueued(min(limit, s.Stats.Queued))
	}
	isProcessing := func(k keyState) bool { return k&processing != 0 }
	if q.observer == nil {
		s.Processing = q.scan(limit, isProcessing)
	} else if limit > fewKeys && s.Stats.Processing > fewKeys {
		s.Processing = q.scan(math.MaxInt, isProcessing)
		sortBySince(s.Processing)
		s.Processing = s.Processing[:min(limit, len(s.Processing))]
	}
	return s
}

// copyFew copies up to limit keys of those states whose keys the queue has in order, under one lock.
func (q *Typed[T]) copyFew(limit int) (s Snapshot[T]) {
	q.gate.Lock()
	defer q.gate.Unlock()
	s.Stats = q.statsLocked()
	for _, slot := range q.appendReadyLocked(make([]keytable.Slot, 0, min(limit, q.ready.n))) {
		s.Queued = append(s.Queued, q.snapshotLocked(slot))
	}
	if q.observer == nil {
		return s
	}
	for slot := range q.observer.Running() {
		if len(s.Processing) == limit {
			break
		}
		s.Processing = append(s.Processing, q.snapshotLocked(slot))
	}
	return s
}

// appendReadyLocked appends the first slots of the line, up to the capacity of slots.
func (q *Typed[T]) appendReadyLocked(slots []keytable.Slot) []keytable.Slot {
	for block := range q.ready.blocks() {
		slots = append(slots, block[:min(len(block), cap(slots)-len(slots))]...)
	}
	return slots
}

// copyQueued copies up to limit of the queued keys: the slots at once, because they have four bytes each, and then
// the keys.
func (q *Typed[T]) copyQueued(limit int) []KeySnapshot[T] {
	slots := make([]keytable.Slot, 0, limit) // Memory is taken before the lock: to get much of it takes milliseconds.
	func() {
		q.gate.Lock()
		defer q.gate.Unlock()
		slots = q.appendReadyLocked(slots)
	}()
	keys := make([]KeySnapshot[T], 0, len(slots))
	for some := range slices.Chunk(slots, fewKeys) {
		keys = q.appendQueued(keys, some)
	}
	return keys
}

// appendQueued appends the keys at slots that are still queued.
func (q *Typed[T]) appendQueued(keys []KeySnapshot[T], slots []keytable.Slot) []KeySnapshot[T] {
	q.gate.Lock()
	defer q.gate.Unlock()
	for _, s := range slots {
		if q.keys.HasMemory(s) && q.keys.At(s).Value == dirty {
			keys = append(keys, q.snapshotLocked(s))
		}
	}
	return keys
}

func sortBySince[T comparable](keys []KeySnapshot[T]) {
	slices.SortStableFunc(keys, func(a, b KeySnapshot[T]) int { return a.Since.Compare(b.Since) })
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

// scan returns up to limit keys whose state is wanted.
func (q *Typed[T]) scan(limit int, wanted func(keyState) bool) []KeySnapshot[T] {
	scanSlab := func(n int, keys []KeySnapshot[T]) ([]KeySnapshot[T], bool) {
		q.gate.Lock()
		defer q.gate.Unlock()
		for slot, k := range q.keys.Slab(n) {
			if len(keys) == limit {
				return keys, false
			}
			if wanted(k.Value) {
				keys = append(keys, q.snapshotLocked(slot))
			}
		}
		return keys, n+1 < q.keys.Slabs()
	}
	return keytable.Collect(scanSlab, nil)
}

// Snapshot returns Stats and copies of up to limit keys of each state. See [Typed.Snapshot] for what it costs.
func (q *delayingType[T]) Snapshot(limit int) Snapshot[T] {
	// In this order, a key that comes due meanwhile may be listed twice.
	waiting := q.copyWaiting(max(limit, 0))
	s := q.Extended.Snapshot(limit)
	s.Waiting = append(waiting, s.Waiting...)
	n, _ := q.numWaiting()
	s.Stats.Waiting += max(n, len(waiting))
	q.addStats(&s.Stats)
	return s
}

// copyWaiting returns up to limit of the keys that wait.
func (q *delayingType[T]) copyWaiting(limit int) []KeySnapshot[T] {
	if limit <= fewKeys {
		n, _ := q.numWaiting()
		return q.appendFirstDue(make([]KeySnapshot[T], 0, min(limit, n)))
	}
	var before time.Time // Keys that are due then or later are not among the first. Zero until enough keys are known.
	scanSlab := func(n int, keys []KeySnapshot[T]) ([]KeySnapshot[T], bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for slot := range q.mu.waiting.keys.LiveSlots(n) {
			if k := q.snapshotWaitingLocked(slot); before.IsZero() || k.Due.Before(before) {
				keys = append(keys, k)
			}
		}
		return keys, n+1 < q.mu.waiting.keys.Slabs()
	}
	trim := func(keys []KeySnapshot[T]) []KeySnapshot[T] {
		if len(keys)/2 >= limit {
			keys = firstDue(keys, limit)
			before = keys[limit-1].Due
		}
		return keys
	}
	return firstDue(keytable.Collect(scanSlab, trim), limit)
}

// firstDue sorts keys and returns up to limit of those that are due first.
func firstDue[T comparable](keys []KeySnapshot[T], limit int) []KeySnapshot[T] {
	slices.SortFunc(keys, func(a, b KeySnapshot[T]) int { return a.Due.Compare(b.Due) })
	return keys[:min(limit, len(keys))]
}

// appendFirstDue appends the keys that are due first, up to the capacity of keys.
func (q *delayingType[T]) appendFirstDue(keys []KeySnapshot[T]) []KeySnapshot[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := range q.mu.waiting.order.InOrder() {
		if len(keys) == cap(keys) {
			break
		}
		keys = append(keys, q.snapshotWaitingLocked(e.Slot))
	}
	return keys
}

// inspectWaiting returns when key is due, if it waits.
func (q *delayingType[T]) inspectWaiting(key T) (k KeySnapshot[T], waits bool) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, e := q.mu.waiting.keys.Find(h, key); e != nil {
		return q.snapshotWaitingLocked(s), true
	}
	return k, false
}

func (q *delayingType[T]) snapshotWaitingLocked(s keytable.Slot) KeySnapshot[T] {
	k := q.mu.waiting.keys.At(s)
	return KeySnapshot[T]{
		Key:   k.Key,
		Since: q.loop.Time(k.Value.duration()),
		Due:   q.loop.Time(time.Duration(q.mu.waiting.order.At(s).Rank)),
	}
}

// Snapshot returns Stats and copies of up to limit keys of each state. It asks the limiter for the
// requeues of each of them, and for the keys with the most. For the latter our limiters look at all keys that
// have failed, a few hundred at a time with the lock given back in between.
func (q *rateLimitingType[T]) Snapshot(limit int) Snapshot[T] {
	s := q.Extended.Snapshot(limit)
	for _, keys := range [][]KeySnapshot[T]{s.Processing, s.Queued, s.Waiting} {
		for i := range keys {
			keys[i].Requeues = q.rateLimiter.NumRequeues(keys[i].Key)
		}
	}
	s.Failing = mostRequeuedOf(q.rateLimiter, max(limit, 0))
	_, lists := q.rateLimiter.(RequeueLister[T])
	s.FailingUnlisted = !lists
	if below, ok := q.delaying.(*delayingType[T]); ok {
		for i := range s.Failing {
			if k, waits := below.inspectWaiting(s.Failing[i].Key); waits {
				s.Failing[i].Since, s.Failing[i].Due = k.Since, k.Due
			}
		}
	}
	return s
}

// Snapshot has only the Stats of the queue below.
func (e *extension[T]) Snapshot(int) Snapshot[T] { return Snapshot[T]{Stats: e.Stats()} }

// RequeueLister is a [TypedRateLimiter] that lists the keys that keep failing, for a queue's Snapshot. The limiters
// of this package that count failures do so, and those that ask other limiters pass on their lists.
type RequeueLister[T comparable] interface {
	// MostRequeued returns up to limit keys with the most requeues, those with the most first. Only Key and
	// Requeues, which is above zero, are set. It is called by any goroutine at any time.
	MostRequeued(limit int) []KeySnapshot[T]
}

// MostRequeued returns up to limit keys with the most failures, those with the most first. It looks at all
// keys that have failed, a few hundred at a time, and other calls come in between.
func (r *TypedItemExponentialFailureRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	return r.failures.most(limit)
}

// MostRequeued returns up to limit keys with the most failures, those with the most first. It looks at all
// keys that have failed, a few hundred at a time, and other calls come in between.
func (r *TypedItemFastSlowRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	return r.failures.most(limit)
}

// MostRequeued returns up to limit keys with the most failures, those with the most first, without those
// that have expired. It looks at all keys, a few hundred at a time, and other calls come in between.
func (r *itemBackoffRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	return mostRequeued(limit, func(n int, found *topKeys[T]) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.keys.keys.Len() == 0 {
			return false
		}
		r.keys.tick()
		for _, k := range r.keys.keys.Slab(n) {
			if k.Value.expires.duration() > r.keys.now {
				found.offer(k.Key, k.Value.count)
			}
		}
		return n+1 < r.keys.keys.Slabs()
	})
}

// MostRequeued returns up to limit keys with the most requeues, those with the most first. It asks those of the
// limiters that are RequeueListers.
func (r *TypedMaxOfRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	var keys []KeySnapshot[T]
	for _, limiter := range r.limiters {
		keys = append(keys, mostRequeuedOf(limiter, limit)...)
	}
	return most(keys, limit)
}

// MostRequeued returns what the other limiter returns, if it is a RequeueLister.
func (w TypedWithMaxWaitRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	return mostRequeuedOf(w.limiter, limit)
}

func (c *failureCounts[T]) most(limit int) []KeySnapshot[T] {
	return mostRequeued(limit, func(n int, found *topKeys[T]) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range c.keys.Slab(n) {
			found.offer(k.Key, k.Value)
		}
		return n+1 < c.keys.Slabs()
	})
}

func mostRequeuedOf[T comparable](limiter TypedRateLimiter[T], limit int) []KeySnapshot[T] {
	if l, ok := limiter.(RequeueLister[T]); ok {
		return l.MostRequeued(limit)
	}
	return nil
}

// topKeys has the keys with the most requeues so far, and others that were found since it was last sorted.
type topKeys[T comparable] struct {
	keys []KeySnapshot[T]
	// above is how many requeues a key must exceed to be worth keeping.
	above int
}

func (t *topKeys[T]) offer(key T, requeues uint32) {
	if int(requeues) > t.above {
		t.keys = append(t.keys, KeySnapshot[T]{Key: key, Requeues: int(requeues)})
	}
}

// mostRequeued returns the keys with the most requeues of those that scan offers, slab by slab, until it returns
// false.
func mostRequeued[T comparable](limit int, scan func(n int, found *topKeys[T]) bool) []KeySnapshot[T] {
	limit = min(limit, math.MaxInt32/2)
	if limit <= 0 {
		return nil
	}
	var found topKeys[T]
	scanSlab := func(n int, keys []KeySnapshot[T]) ([]KeySnapshot[T], bool) {
		found.keys = keys
		more := scan(n, &found)
		return found.keys, more
	}
	trim := func(keys []KeySnapshot[T]) []KeySnapshot[T] {
		if len(keys) < 2*limit {
			return keys
		}
		keys = most(keys, limit)
		if len(keys) == limit {
			found.above = keys[limit-1].Requeues
		}
		return keys
	}
	return most(keytable.Collect(scanSlab, trim), limit)
}

// most sorts keys and returns the first limit of them, each once: one that was forgotten and has failed
// again may have been found in both of its slots.
func most[T comparable](keys []KeySnapshot[T], limit int) []KeySnapshot[T] {
	slices.SortStableFunc(keys, func(a, b KeySnapshot[T]) int { return cmp.Compare(b.Requeues, a.Requeues) })
	seen := make(map[T]struct{}, min(len(keys), max(limit, 0)))
	n := 0
	for _, k := range keys {
		if n >= limit {
			break
		}
		if _, again := seen[k.Key]; !again {
			seen[k.Key] = struct{}{}
			keys[n] = k
			n++
		}
	}
	return slices.Delete(keys, n, len(keys))
}
