package priorityqueue

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Add says that item needs processing, with priority 0. After shutdown it does nothing, as all that add. See the package
// comment for what it means in which state, and for the costs.
func (q *Queue[T]) Add(item T) {
	r := q.newRequest(AddOpts{})
	q.add(item, &r)
}

// AddAfter adds item when duration has passed, or at once if duration is not positive. A key that a worker holds keeps
// the priority with which it was handed out, and counts as added by that worker: see [AddOpts].MaxDelay. Any other key
// is added with priority 0. AddAfter never blocks.
func (q *Queue[T]) AddAfter(item T, duration time.Duration) {
	r := q.newRequest(AddOpts{After: duration})
	r.byWorker, r.keepPriority, r.retry = true, true, true
	q.add(item, &r)
}

// AddRateLimited adds item after the limiter's delay. A key that a worker holds keeps the priority with which
// it was handed out; any other is added with priority 0. The limiter is asked only if its answer can matter,
// so any number of AddRateLimited of a waiting key count as one failure.
func (q *Queue[T]) AddRateLimited(item T) {
	r := q.newRequest(AddOpts{RateLimited: true})
	r.keepPriority = true
	q.add(item, &r)
}

// AddWithPriority adds key with that priority when the time after has passed. It is for workers that ask for another
// run of their key, such as those of package worker: while a worker holds the key it counts as added by that worker,
// see [AddOpts].MaxDelay. Otherwise it is AddWithOpts.
func (q *Queue[T]) AddWithPriority(key T, priority int, after time.Duration) {
	r := q.newRequest(AddOpts{Priority: priority, After: after})
	r.byWorker = true
	q.add(key, &r)
}

// AddWithOpts adds each of the keys as o says, one after another. It panics if o.Delay is not one of the policies. If a
// key, Group, Weight, Limit or the limiter makes it panic, the keys before have been added.
func (q *Queue[T]) AddWithOpts(o AddOpts, keys ...T) {
	r := q.newRequest(o)
	for _, key := range keys {
		q.add(key, &r)
	}
}

// AddAll is AddWithOpts of many keys. Up to 512 of them are added at one moment, so that none is handed out before
// the others are there, and more in several steps; but with RateLimited each is added for itself. The
// sequence is read before the queue is locked, and may call the queue. If it, Group, Weight or Limit panics, or
// one of the keys makes AddAll panic, none is added.
func (q *Queue[T]) AddAll(o AddOpts, keys iter.Seq[T]) {
	r := q.newRequest(o)
	var all []newKey[T]
	for key := range keys {
		all = append(all, q.newKey(key))
	}
	if r.RateLimited {
		for i := range all {
			q.addRateLimited(&all[i], &r)
		}
		return
	}
	for some := range slices.Chunk(all, maxPerLock) {
		q.addSome(some, &r)
	}
}

func (q *Queue[T]) addSome(keys []newKey[T], r *request) {
	now := q.readClock(q.needsTime(r))
	q.lockAt(now)
	defer q.unlock()
	for i := range keys {
		q.addLocked(&keys[i], r, now)
	}
}

func (q *Queue[T]) add(key T, r *request) {
	k := q.newKey(key)
	if r.RateLimited {
		q.addRateLimited(&k, r)
		return
	}
	now := q.readClock(q.needsTime(r))
	q.lockAt(now)
	defer q.unlock()
	q.addLocked(&k, r, now)
}

// newKey is a key that is to be added, and everything that foreign code has to say about it.
type newKey[T comparable] struct {
	key           T
	hash          keytable.Hash
	group         string
	groupHash     keytable.Hash
	weight, limit int
}

// newKey hashes key and asks for its group. It panics for a key that cannot be one, before any foreign code is asked.
func (q *Queue[T]) newKey(key T) newKey[T] {
	k := newKey[T]{key: key, hash: keytable.HashOf(key), weight: 1}
	keytable.CheckKey(key)
	if q.config.Group == nil {
		return k
	}
	k.group = q.config.Group(key)
	k.groupHash = keytable.HashOf(k.group)
	if q.config.Weight != nil {
		k.weight = max(1, q.config.Weight(k.group))
	}
	if q.config.Limit != nil {
		k.limit = max(0, q.config.Limit(k.group))
	}
	return k
}

// addLocked adds a key. The time must be known if r needs it.
func (q *Queue[T]) addLocked(k *newKey[T], r *request, now time.Duration) {
	if q.shuttingDown.Load() {
		return
	}
	s, e, _ := q.mu.keys.FindOrInsert(k.hash, k.key)
	it := &e.Value
	if r.retry {
		q.mu.retries++
	}
	switch it.state {
	case absent:
		if q.config.MinInterval > 0 {
			q.mu.details.At(s).started = unknown
		}
		q.insertLocked(s, it, k, r, now)
	case resting:
		q.endRestLocked(s)
		q.insertLocked(s, it, k, r, now)
	case queued:
		q.mergePriorityLocked(s, it, &it.priority, r.Priority, r, now)
	case waiting:
		q.rescheduleLocked(s, it, r, now)
	default:
		q.addHeldLocked(s, it, r, now)
		q.interruptLocked(s, it)
	}
	if r.Cause != nil {
		q.addCauseLocked(s, it, r.Cause)
	}
}

// insertLocked adds a key that was not in the queue, and has the slot s there by now.
func (q *Queue[T]) insertLocked(s keytable.Slot, it *item, k *newKey[T], r *request, now time.Duration) {
	if q.config.Group != nil {
		q.joinGroupLocked(s, k)
	}
	it.priority, it.added = r.Priority, addedUnknown
	if now == unknown { // A request that does not need the time is for now.
		q.enqueueLocked(s, it, now)
		return
	}
	q.noteAddedLocked(s, it, r, now)
	it.limited = r.answered
	q.scheduleLocked(s, it, q.boundLocked(s, it, r, r.time(now)), now)
}

// enqueueLocked queues the key at s, which no worker holds, at the end of the line of its priority.
func (q *Queue[T]) enqueueLocked(s keytable.Slot, it *item, now time.Duration) {
	q.countAddLocked(s, it.priority, now)
	q.joinLineLocked(s, it, it.priority, now)
	q.becomeQueuedLocked(s, it)
}

// rescheduleLocked adds the waiting key at s.
func (q *Queue[T]) rescheduleLocked(s keytable.Slot, it *item, r *request, now time.Duration) {
	it.priority = r.mergePriority(it.priority, r.Priority)
	q.noteAddedLocked(s, it, r, now)
	before := q.dueAtLocked(s)
	at := q.boundLocked(s, it, r, r.merge(before, it.limited, now))
	it.limited = r.marksLimited(it.limited)
	if at != before {
		q.mu.due.Remove(s)
		q.scheduleLocked(s, it, at, now)
	}
}

// addHeldLocked adds the key at s, which a worker holds: it is queued when that worker is Done, or waits then for its
// time.
func (q *Queue[T]) addHeldLocked(s keytable.Slot, it *item, r *request, now time.Duration) {
	priority := r.Priority
	if r.keepPriority {
		priority = it.priority
	}
	at := r.time(now)
	if d := q.mu.details.At(s); it.state == processing {
		d.rerunPriority, d.quiet = priority, r.isQuiet()
		it.limited, it.added = false, addedUnknown
		d.yields = r.Delay == RespectBackoff && !r.answered
	} else {
		if it.state == rerun {
			q.mergePriorityLocked(s, it, &d.rerunPriority, priority, r, now)
		} else {
			d.rerunPriority = r.mergePriority(d.rerunPriority, priority)
		}
		d.quiet = d.quiet && r.isQuiet()
		if r.answered && d.yields {
			d.yields = false
		} else {
			d.yields = d.yields && r.Delay == RespectBackoff
			if it.state == rerun {
				return
			}
			at = r.merge(q.dueAtLocked(s), it.limited, now)
		}
	}
	q.noteAddedLocked(s, it, r, now)
	at = q.boundLocked(s, it, r, at)
	it.limited = r.marksLimited(it.limited)
	q.rerunAtLocked(s, it, at, now)
}

// rerunAtLocked makes the held key at s come again at that time, instead of any other.
func (q *Queue[T]) rerunAtLocked(s keytable.Slot, it *item, at, now time.Duration) {
	limited := it.limited
	switch it.state {
	case rerun:
		if at <= now {
			it.limited = false
			return
		}
		q.cancelRerunLocked(s, it)
	case rerunLater:
		if at == q.dueAtLocked(s) {
			return
		}
		q.cancelRerunLocked(s, it)
	}
	it.limited = limited
	if at <= now {
		q.rerunNowLocked(s, it, now)
		return
	}
	it.state = rerunLater
	q.pushDueLocked(s, at)
}

// rerunNowLocked makes the held key at s, which is not in due, come again when its worker is Done.
func (q *Queue[T]) rerunNowLocked(s keytable.Slot, it *item, now time.Duration) {
	it.state, it.limited = rerun, false
	q.mu.reruns++
	priority := q.mu.details.At(s).rerunPriority
	q.countAddLocked(s, priority, now)
	if q.config.PlaceOfAdd {
		q.joinLineLocked(s, it, priority, now)
	}
}

// cancelRerunLocked makes the key at s, in state rerun or rerunLater, one that is processing and does not come again.
func (q *Queue[T]) cancelRerunLocked(s keytable.Slot, it *item) {
	if it.state == rerunLater {
		q.mu.due.Remove(s)
	} else {
		q.mu.reruns--
		q.countGoneLocked(q.mu.details.At(s).rerunPriority)
		if it.line != keytable.None {
			q.leaveLineLocked(s, it)
		}
	}
	it.state, it.limited = processing, false
}
