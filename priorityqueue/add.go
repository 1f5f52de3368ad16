package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Add says that key needs processing, with priority 0. After shutdown no add has an effect. See the package
// comment for what it means in which state, and for the costs.
func (q *Queue[T]) Add(key T) { q.add(key, request{}) }

// AddAfter adds key when duration has passed, or at once if it is not positive. A key that a worker holds
// keeps the priority of its hand-out, and counts as added by that worker: see [AddOpts].MaxDelay. For any
// other, it asks for priority 0. AddAfter never blocks.
func (q *Queue[T]) AddAfter(key T, duration time.Duration) {
	q.add(key, request{AddOpts: AddOpts{After: duration}, byWorker: true, keepPriority: true})
}

// AddWithPriority is AddWithOpts with a priority and a time. As in AddAfter, a held key counts as added by
// its worker.
func (q *Queue[T]) AddWithPriority(key T, priority int, after time.Duration) {
	q.add(key, request{AddOpts: AddOpts{Priority: priority, After: after}, byWorker: true})
}

// See [workqueue.Extended] and [AddOpts].Cause.
func (q *Queue[T]) AddCause(key T, cause workqueue.Cause) { q.AddWithOpts(AddOpts{Cause: &cause}, key) }

// AddWithOpts adds the keys as o says. Up to 512 of them are added at one moment, so that none is handed out
// before the others are there. More keys are added in several steps, and with RateLimited each is a step. It
// panics if o.Delay is not one of the policies. If a key, Group, Weight, Limit or the limiter makes it panic,
// keys of earlier steps have been added.
func (q *Queue[T]) AddWithOpts(o AddOpts, keys ...T) {
	r := request{AddOpts: o}
	if len(keys) == 1 {
		q.add(keys[0], r)
		return
	}
	q.complete(&r) // Also without keys: it panics for a wrong policy.
	if r.RateLimited {
		for _, key := range keys {
			q.add(key, r)
		}
		return
	}
	for len(keys) > 0 {
		var few [8]prepared[T] // saves the allocation for a few keys
		step := few[:0]
		for _, key := range keys[:min(len(keys), maxPerLock)] {
			step = append(step, q.prepare(key))
		}
		q.addPrepared(&r, step...)
		keys = keys[len(step):]
	}
}

func (q *Queue[T]) add(key T, r request) {
	q.complete(&r)
	k := q.prepare(key)
	if r.RateLimited {
		q.addRateLimited(k, r)
	} else {
		q.addPrepared(&r, k)
	}
}

// prepared is a key that is to be added, with its hash and what the functions of Config say about it.
type prepared[T comparable] struct {
	key           T
	hash          keytable.Hash
	group         string
	groupHash     keytable.Hash
	weight, limit int
}

// prepare hashes key, and asks for its group without the lock. It panics for what cannot be a key before it
// calls a function of Config.
func (q *Queue[T]) prepare(key T) prepared[T] {
	k := prepared[T]{key: key, hash: keytable.HashOf(key), weight: 1}
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

// addPrepared adds keys at one moment. If r is rate-limited, its After has the limiter's delay in it already.
func (q *Queue[T]) addPrepared(r *request, keys ...prepared[T]) {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceLocked()
	if now == notRead && (r.After > 0 || r.RateLimited || r.isBounded()) {
		now = q.loop.Now()
	}
	for i := range keys {
		q.addLocked(&keys[i], r, now)
	}
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
// With SetPriority the priority that is asked for is always taken. AddAfter, AddRateLimited and Fail ask, for
// a held key, for the priority of its hand-out. request.mergeTimes merges times.
func (q *Queue[T]) addLocked(k *prepared[T], r *request, now time.Duration) {
	if q.shuttingDown.Load() {
		return
	}
	s, e, _ := q.mu.keys.FindOrInsert(k.hash, k.key)
	info := &e.Value
	if r.isCounted() {
		q.mu.retries++
	}
	askedPriority := r.Priority
	if info.state.isHeld() {
		q.recordHeldAddLocked(s, info, r)
		if r.keepPriority {
			askedPriority = info.priority
		}
	}
	nextPriority := q.nextPriorityLocked(s, info)
	switch info.state {
	case absent, resting:
		q.enterQueueLocked(s, info, k)
		fallthrough // From here on a new key is like one that is processing: in no line and not in due.
	case processing:
		*nextPriority = askedPriority
		q.planLocked(s, info, r, r.askedTime(now), now)
	case queued, rerun:
		q.setPriorityLocked(s, info, r.mergePriorities(*nextPriority, askedPriority), now)
		q.interruptLocked(s, info) // This may be a rerun key's first add that is not quiet.
	case waiting, rerunLater:
		*nextPriority = r.mergePriorities(*nextPriority, askedPriority)
		q.planLocked(s, info, r, r.mergeTimes(q.dueWithoutIntervalLocked(s), now), now)
	}
	if r.hasCause() {
		cause := r.Cause
		q.mu.notes.AddCause(s, func(before workqueue.Causes) workqueue.Causes { return before.Plus(*cause) })
		info.noted = true
	}
}

// recordHeldAddLocked records an add of a held key in onlyRetry, failed and quiet. The first add resets
// byEvent too: planLocked sets it only if the clock was read.
func (q *Queue[T]) recordHeldAddLocked(s keytable.Slot, info *keyInfo, r *request) {
	d := q.mu.details.At(s)
	if info.state == processing { // It is the first add.
		d.onlyRetry, d.failed, d.quiet, d.byEvent = true, false, true, false
	}
	d.onlyRetry = d.onlyRetry && r.isRetry
	d.failed = d.failed || r.isFailure
	d.quiet = d.quiet && r.Cause != nil && r.Cause.Quiet
}

// planLocked makes the key at s, which is not in a line, come at that time or, because of MaxDelay or
// MinInterval, at another one.
func (q *Queue[T]) planLocked(s keytable.Slot, info *keyInfo, r *request, at, now time.Duration) {
	if now != notRead { // Otherwise the add has no delay, and there is neither a bound nor an interval.
		d := q.mu.details.At(s)
		isEvent := r.isEvent(info.state.isHeld())
		if !info.state.isInDue() || isEvent && !d.byEvent { // The first add since the hand-out, or the first event.
			d.addedAt, d.byEvent = now, isEvent
		}
		if r.isBounded() && d.byEvent {
			at = min(at, q.boundLocked(s, info, r, d.addedAt))
		}
		if q.config.MinInterval > 0 {
			*d.askedAt() = at
			at = max(at, q.nextStartLocked(s, now))
		}
	}
	// With Earliest and Latest a key that has waited for the limiter counts as still doing so.
	info.byLimiter = r.RateLimited || info.byLimiter && r.Delay != Replace
	q.scheduleLocked(s, info, at, now)
}

// boundLocked returns the latest time at which the MaxDelay of r, counted from the first event, lets the key
// at s come. Call it before byLimiter changes.
func (q *Queue[T]) boundLocked(s keytable.Slot, info *keyInfo, r *request, from time.Duration) time.Duration {
	bound := dueloop.AddSaturated(from, r.MaxDelay)
	if info.byLimiter && r.Delay == Latest {
		bound = max(bound, q.dueWithoutIntervalLocked(s)) // The limiter's time is not cut.
	}
	return bound
}
