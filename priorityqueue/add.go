package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Add says that item needs processing, with priority 0. After shutdown no add has an effect. See the
// package comment for what it means in which state, and for the costs.
func (q *Queue[T]) Add(item T) {
	r := q.newRequest(AddOpts{})
	q.add(item, &r)
}

// AddAfter adds item when duration has passed, or at once if it is not positive. A key that a worker holds
// keeps the priority of its hand-out, and counts as added by that worker: see [AddOpts].MaxDelay. Any other
// gets priority 0. It never blocks.
func (q *Queue[T]) AddAfter(item T, duration time.Duration) {
	r := q.newRequest(AddOpts{After: duration})
	r.byWorker, r.keepPriority = true, true
	q.add(item, &r)
}

// AddWithPriority is AddWithOpts with a priority and a time. It is for workers that ask for another run of
// their key, such as those of package worker: as in AddAfter, a held key counts as added by its worker.
func (q *Queue[T]) AddWithPriority(key T, priority int, after time.Duration) {
	r := q.newRequest(AddOpts{Priority: priority, After: after})
	r.byWorker = true
	q.add(key, &r)
}

// AddCause is Add that says why key needs processing. See [AddOpts].Cause.
func (q *Queue[T]) AddCause(key T, cause workqueue.Cause) {
	r := q.newRequest(AddOpts{Cause: &cause})
	q.add(key, &r)
}

// AddWithOpts adds the keys as o says. Up to 512 of them are added at one moment, so that none is handed out
// before the others are there, and more in several steps; but with RateLimited each is added for itself. It
// panics if o.Delay is not one of the policies. If a key, Group, Weight, Limit or the limiter makes it panic,
// keys of earlier steps have been added.
func (q *Queue[T]) AddWithOpts(o AddOpts, keys ...T) {
	r := q.newRequest(o)
	if r.RateLimited || len(keys) == 1 {
		for _, key := range keys {
			q.add(key, &r)
		}
		return
	}
	for len(keys) > 0 {
		var few [8]newKey[T] // saves an allocation
		some := few[:0]
		for _, key := range keys[:min(len(keys), maxPerLock)] {
			some = append(some, q.newKey(key))
		}
		q.addSome(some, &r)
		keys = keys[len(some):]
	}
}

func (q *Queue[T]) addSome(keys []newKey[T], r *request) {
	now := q.readClockFor(r)
	q.lockAndAdvance(now)
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
	now := q.readClockFor(r)
	q.lockAndAdvance(now)
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

// newKey hashes key and asks for its group. It panics for what cannot be a key before it asks foreign code.
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

// addLocked adds a key. The clock must have been read if r uses the time. What an add means in each state:
//
//	state            priority         comes
//	absent, resting  the one asked    at the time asked
//	processing       the one asked    at the time asked
//	queued, rerun    the higher one   as before
//	waiting          the higher one   at the merge of the times
//	rerunLater       the higher one   at the merge of the times
//
// With SetPriority the priority that is asked for is always taken.
func (q *Queue[T]) addLocked(k *newKey[T], r *request, now time.Duration) {
	if q.shuttingDown.Load() {
		return
	}
	s, e, _ := q.mu.keys.FindOrInsert(k.hash, k.key)
	it := &e.Value
	if r.isRetry() {
		q.mu.retries++
	}
	askedPriority := r.Priority
	nextPriority := &it.priority // that of the next hand-out
	if it.state.isHeld() {
		nextPriority = &q.mu.details.At(s).rerunPriority
		if r.keepPriority {
			askedPriority = it.priority
		}
		it.set(quiet, it.staysQuiet(r))
		it.set(failed, it.has(failed) || r.RateLimited)
	}
	switch it.state {
	case absent, resting:
		q.enterLocked(s, it, k)
		fallthrough // Like a processing key, it is in no line and not in due. Its state is set there.
	case processing:
		*nextPriority, it.addedBy = askedPriority, addedUnknown
		q.comeLocked(s, it, r, r.time(now), now)
	case queued, rerun:
		q.setPriorityLocked(s, it, nextPriority, r.mergePriority(*nextPriority, askedPriority), now)
	case waiting, rerunLater:
		*nextPriority = r.mergePriority(*nextPriority, askedPriority)
		q.comeLocked(s, it, r, r.merge(q.askedTimeLocked(s), now), now)
	}
	q.interruptLocked(s, it)
	if c := r.Cause; c != nil && (c.Reason != "" || c.TraceParent != "") {
		q.mu.notes.AddCause(s, func(before workqueue.Causes) workqueue.Causes { return before.Plus(*c) })
		it.set(noted, true)
	}
}

// comeLocked makes the key at s, which is not in a line, come at the time asked for, moved by MaxDelay and
// MinInterval.
func (q *Queue[T]) comeLocked(s keytable.Slot, it *item, r *request, askedTime, now time.Duration) {
	by := addedByWorker
	if r.isEvent(it.state.isHeld()) {
		by = addedByEvent
	}
	// The first event sets addedAt, and a worker's add does so until then; neither if the clock was not read.
	if now != notRead && it.addedBy < by {
		it.addedBy = by
		q.mu.details.At(s).addedAt = now
	}
	if r.isBounded() && it.addedBy == addedByEvent {
		latest := dueloop.AddSaturated(q.mu.details.At(s).addedAt, r.MaxDelay)
		if it.has(limited) && r.Delay == Latest {
			latest = max(latest, q.askedTimeLocked(s)) // The limiter's time is not cut.
		}
		askedTime = min(askedTime, latest)
	}
	it.set(limited, r.RateLimited || it.has(limited) && r.Delay != Replace)
	at := askedTime
	if q.config.MinInterval > 0 {
		q.mu.details.At(s).askedTime = askedTime
		at = max(at, q.nextStartLocked(s, now))
	}
	q.scheduleLocked(s, it, at, now)
}

// setPriorityLocked changes the priority of the key at s, which is queued or in state rerun.
func (q *Queue[T]) setPriorityLocked(s keytable.Slot, it *item, priority *int, newPriority int, now time.Duration) {
	oldPriority := *priority
	if newPriority == oldPriority {
		return
	}
	*priority = newPriority
	q.mu.depths.add(oldPriority, -1)
	q.mu.depths.add(newPriority, 1)
	if it.line != keytable.None {
		q.changeLineLocked(s, it, oldPriority, newPriority, now)
	}
}
