package priorityqueue

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Add says that item needs processing, with priority 0. After shutdown it does nothing, as all that add. See the package
// comment for what it means in which state, and for the costs.
func (q *Queue[T]) Add(item T) {
	r := q.newRequest(AddOpts{})
	q.add(item, &r)
}

// AddAfter adds item when duration has passed, or at once if it is not positive. A key that a worker holds keeps the priority of
// its hand-out, and counts as added by that worker: see [AddOpts].MaxDelay. Any other gets priority 0. AddAfter never blocks.
func (q *Queue[T]) AddAfter(item T, duration time.Duration) {
	r := q.newRequest(AddOpts{After: duration})
	r.byWorker, r.keepPriority, r.retry = true, true, true
	q.add(item, &r)
}

// AddRateLimited adds item after the limiter's delay. A key that a worker holds keeps the priority of its hand-out; any other
// gets priority 0. The limiter is asked only if its answer can matter: all AddRateLimited of a waiting key count as one failure.
func (q *Queue[T]) AddRateLimited(item T) {
	r := q.newRequest(AddOpts{RateLimited: true})
	r.keepPriority = true
	q.add(item, &r)
}

// AddWithPriority is AddWithOpts with a priority and a time. It is for workers that ask for another run of their key, as those of
// package worker: a key that a worker holds counts as added by that worker. See [AddOpts].MaxDelay.
func (q *Queue[T]) AddWithPriority(key T, priority int, after time.Duration) {
	r := q.newRequest(AddOpts{Priority: priority, After: after})
	r.byWorker = true
	q.add(key, &r)
}

// AddRateLimitedAfter is AddRateLimited, but key does not come before atLeast has passed, unless an add brings it earlier.
func (q *Queue[T]) AddRateLimitedAfter(key T, atLeast time.Duration) {
	r := q.newRequest(AddOpts{RateLimited: true, AtLeast: atLeast})
	r.keepPriority = true
	q.add(key, &r)
}

// AddCause is Add that says why key needs processing. See [AddOpts].Cause.
func (q *Queue[T]) AddCause(key T, cause workqueue.Cause) {
	r := q.newRequest(AddOpts{Cause: &cause})
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

// AddAll is AddWithOpts of many keys. Up to 512 of them are added at one moment, so that none is handed out before the others are
// there, and more in several steps; but with RateLimited each is added for itself. The sequence is read before the queue is
// locked, and may call the queue. If AddAll panics, because of it, a key, Group, Weight or Limit, none is added.
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

// addRateLimited asks the limiter if its answer matters, and adds the key. (client-go always asks: kubernetes/kubernetes#112325.)
//
// The limiter is foreign code: it may be slow, call the queue or panic. So it is asked without the queue's lock, and the key is
// not touched until there is an answer. If the key was queued in between, the answer is merged as any other add.
//
// The limiter and the clock run under one lock, asking, which only rate-limited adds take. So of many adds at once one asks, and a
// slow limiter delays those of all keys.
func (q *Queue[T]) addRateLimited(k *newKey[T], r *request) {
	q.asking.Lock()
	defer q.asking.Unlock()
	ask, held := q.mustAsk(k, r)
	if !ask {
		return
	}
	asked := *r
	asked.answered = true
	asked.After = q.askLimiter(k.key, r, held)
	now := q.readClock(true)
	q.lockAt(now)
	defer q.unlock()
	q.addLocked(k, &asked, now)
}

// askLimiter returns how long a rate-limited key waits. If a worker holds it, this is a failure, as of Fail.
func (q *Queue[T]) askLimiter(key T, r *request, held bool) time.Duration {
	atMost := func(delay time.Duration) time.Duration {
		if r.After > 0 {
			delay = min(delay, r.After)
		}
		return max(delay, r.AtLeast)
	}
	if !held {
		return atMost(q.config.RateLimiter.When(key))
	}
	retry := q.failures.Judge(key, failures.Failure{AtLeast: r.AtLeast})
	if !retry.Same {
		retry.Delay = atMost(failures.Ask(q.config.RateLimiter, key))
		q.failures.Count(key, retry)
	}
	return retry.Delay
}

// mustAsk reports whether the limiter's answer can matter to k, and whether a worker holds k. If not, it adds k without.
func (q *Queue[T]) mustAsk(k *newKey[T], r *request) (ask, held bool) {
	now := q.readClock(q.needsTime(r))
	q.lockAt(now)
	defer q.unlock()
	if q.shuttingDown.Load() {
		return false, false
	}
	s, e := q.mu.keys.Find(k.hash, k.key)
	if s == keytable.None || q.needsLimiterLocked(s, &e.Value) {
		return true, s != keytable.None && e.Value.state.isHeld()
	}
	unasked := *r
	unasked.askedBefore = true
	q.addLocked(k, &unasked, now)
	return false, false
}

// needsLimiterLocked reports whether it matters for how long the limiter would make the key at s wait.
func (q *Queue[T]) needsLimiterLocked(s keytable.Slot, it *item) bool {
	switch it.state {
	case queued:
		return false
	case rerun:
		return q.mu.details.At(s).yields
	case waiting, rerunLater:
		return !it.limited
	}
	return true
}

// Fail is that of [workqueue.ExtendedRateLimiting]. The key keeps the priority of its hand-out.
func (q *Queue[T]) Fail(_ context.Context, key T, f workqueue.Failure) (workqueue.Retry, error) {
	retry := q.failures.Fail(key, failures.Failure(f), q.config.RateLimiter)
	if retry.GivenUp {
		q.config.RateLimiter.Forget(key)
		return workqueue.Retry(retry), nil
	}
	r := q.newRequest(AddOpts{After: retry.Delay})
	r.byWorker, r.keepPriority, r.retry, r.answered = true, true, true, true
	q.add(key, &r)
	return workqueue.Retry(retry), nil
}

// Failures is that of [workqueue.ExtendedRateLimiting].
func (q *Queue[T]) Failures(key T) (n int, left time.Duration) { return q.failures.Of(key) }

// Forget is that of the limiter, and ends the queue's own count. The worker still has to call Done.
func (q *Queue[T]) Forget(item T) {
	q.failures.Forget(item)
	q.config.RateLimiter.Forget(item)
}

// NumRequeues is that of the limiter.
func (q *Queue[T]) NumRequeues(item T) int { return q.config.RateLimiter.NumRequeues(item) }

// request is what an add asks for, and how it is merged with what was asked for the key before.
type request struct {
	AddOpts // Delay is not DefaultDelay.
	// byWorker makes the add one by the key's worker, if a worker holds the key. See AddOpts.MaxDelay.
	byWorker bool
	// keepPriority means the priority of a key that a worker holds, instead of Priority.
	keepPriority bool
	// answered reports that After already includes the limiter's delay.
	answered bool
	// askedBefore reports that the limiter was asked for an earlier add: its delay is in the key's present time.
	askedBefore bool
	// retry makes the add count in Stats.Retries.
	retry bool
}

func (q *Queue[T]) newRequest(o AddOpts) request {
	switch {
	case o.Delay == DefaultDelay:
		o.Delay = q.config.Delay
	case o.Delay > RespectBackoff:
		panic("priorityqueue: AddOpts.Delay is not a DelayPolicy")
	}
	if o.Cause != nil && o.Cause.Time.IsZero() {
		timed := *o.Cause
		timed.Time = q.config.Clock.Now()
		o.Cause = &timed
	}
	r := request{AddOpts: o, retry: o.After > 0 || o.RateLimited, byWorker: o.MaxDelay == 0 && o.RateLimited}
	if r.MaxDelay == 0 && !r.RateLimited {
		r.MaxDelay = q.config.MaxDelay
	}
	return r
}

// isQuiet reports whether the add does not interrupt the worker that holds the key.
func (r *request) isQuiet() bool { return r.Cause != nil && r.Cause.Quiet }

// needsTime reports whether r depends on the time: its own, or that of the first add if a later one may put off the key.
func (q *Queue[T]) needsTime(r *request) bool {
	return r.After > 0 || r.Delay == RespectBackoff || r.MaxDelay > 0 && r.Delay.postpones()
}

// time returns when the key is to come, whatever was asked before.
func (r *request) time(now time.Duration) time.Duration {
	if r.After <= 0 {
		return unknown
	}
	return dueloop.AddSaturated(now, r.After)
}

// merge returns the new time of a key whose time is before. limited reports whether the limiter was asked for it already.
func (r *request) merge(before time.Duration, limited bool, now time.Duration) time.Duration {
	at := r.time(now)
	if r.askedBefore {
		if at == unknown || at > before { // The limiter's delay is in before, and After can only shorten it.
			at = before
		}
		if r.AtLeast > 0 {
			at = max(at, dueloop.AddSaturated(now, r.AtLeast))
		}
	}
	switch {
	case r.Delay == Latest:
		return max(before, at)
	case r.Delay == Replace:
		return at
	case r.Delay == RespectBackoff && limited:
		return before
	}
	return min(before, at)
}

// marksLimited returns item.limited after the add. It was limited before.
func (r *request) marksLimited(limited bool) bool {
	return r.answered || limited && (r.Delay != Replace || r.RateLimited)
}

// mergePriority returns the priority of a key that had the priority before.
func (r *request) mergePriority(before, asked int) int {
	if r.SetPriority {
		return asked
	}
	return max(before, asked)
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
	if c := r.Cause; c != nil && (c.Reason != "" || c.TraceParent != "") {
		q.mu.notes.AddCause(s, func(before workqueue.Causes) workqueue.Causes { return before.Plus(*c) })
		it.noted = true
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

// addHeldLocked adds the key at s, which a worker holds: it is queued when that worker is Done, or waits then for its time.
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

// mergePriorityLocked merges the priority of an add into that of the key at s, which is queued or in state rerun.
func (q *Queue[T]) mergePriorityLocked(s keytable.Slot, it *item, priority *int, asked int, r *request, now time.Duration) {
	before := *priority
	after := r.mergePriority(before, asked)
	if after == before {
		return
	}
	*priority = after
	if q.observer != nil {
		q.mu.depths.add(before, -1)
		q.mu.depths.add(after, 1)
	}
	if it.line != keytable.None {
		q.changeLineLocked(s, it, before, after, now)
	}
}

// noteAddedLocked notes when the key was first added since its hand-out, by an event if there is one: MaxDelay counts from it.
func (q *Queue[T]) noteAddedLocked(s keytable.Slot, it *item, r *request, now time.Duration) {
	by := addedByEvent
	if r.byWorker && (r.RateLimited || it.state.isHeld()) {
		by = addedByWorker
	}
	if now != unknown && it.added < by {
		it.added = by
		q.mu.details.At(s).added = now
	}
}

// boundLocked returns at, or the bound that MaxDelay or MinInterval set. The key at s may be in due.
func (q *Queue[T]) boundLocked(s keytable.Slot, it *item, r *request, at time.Duration) time.Duration {
	if r.MaxDelay > 0 && r.Delay.postpones() && it.added == addedByEvent {
		latest := dueloop.AddSaturated(q.mu.details.At(s).added, r.MaxDelay)
		if it.limited && r.Delay == Latest && (it.state == waiting || it.state == rerunLater) {
			latest = max(latest, q.dueAtLocked(s)) // The limiter's time is not cut.
		}
		at = min(at, latest)
	}
	if q.config.MinInterval > 0 {
		at = max(at, q.nextStartLocked(s))
	}
	return at
}
