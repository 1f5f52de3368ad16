package priorityqueue

import (
	"iter"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// newKey is a key that is to be added, and all that code that is not ours has to say about it.
type newKey[T comparable] struct {
	key       T
	hash      keytable.Hash
	groupHash keytable.Hash
	group     string
	weight    int
}

// request is what an add asks for.
type request struct {
	AddOpts
	// keepPriority means that of a key that a worker holds, instead of Priority.
	keepPriority bool
	// answered tells that After has the limiter's answer in it, unanswered that the limiter need not be asked
	// although the add is RateLimited.
	answered, unanswered bool
	// retry counts in Stats.
	retry bool
}

// Add says that item needs processing, with priority 0. It takes constant time. After shutdown it does
// nothing. See the package comment for what it means in which state.
func (q *Queue[T]) Add(item T) { q.add(item, &plain) }

// plain is the request of Add.
var plain request

// AddAfter adds item when duration has passed, or at once if duration is not positive. A key that a worker
// holds keeps the priority with which it was handed out; any other is added with priority 0. It never
// blocks, and takes O(log n) time for n waiting keys. A key that would be due more than 292 years after the
// queue's first reading of the clock never comes. After shutdown AddAfter does nothing.
func (q *Queue[T]) AddAfter(item T, duration time.Duration) {
	q.add(item, &request{AddOpts: AddOpts{After: duration}, keepPriority: true, retry: true})
}

// AddWithOpts adds each of the keys as o says, one after another. It takes O(log n) time for each, where n is
// the number of waiting keys or of the priorities of the ready ones. After shutdown it does nothing. It panics
// if o.Delay is not one of the policies. If a key, Group, Weight or the limiter makes it panic, the keys before
// have been added.
func (q *Queue[T]) AddWithOpts(o AddOpts, keys ...T) {
	o.check()
	r := request{AddOpts: o, retry: o.After > 0 || o.RateLimited}
	for _, key := range keys {
		q.add(key, &r)
	}
}

// AddAll is Add of all keys at one moment, so that none is handed out, or seen, before the others are there.
// The sequence is read before the queue is locked, and may call the queue. If it, Group or Weight panics, or one
// of the keys makes AddAll panic, none is added.
func (q *Queue[T]) AddAll(keys iter.Seq[T]) {
	var all []newKey[T]
	for key := range keys {
		all = append(all, newKey[T]{key: key, hash: keytable.HashOf(key)})
		keytable.CheckKey(key)
		if q.groupOf != nil {
			q.findGroup(&all[len(all)-1])
		}
	}
	now := q.lock(false)
	defer q.unlock()
	for i := range all {
		q.addLocked(&all[i], &plain, now)
	}
}

func (q *Queue[T]) add(key T, r *request) {
	k := newKey[T]{key: key, hash: keytable.HashOf(key)}
	if q.groupOf != nil {
		q.findGroup(&k)
	}
	if r.RateLimited {
		q.addRateLimited(&k, r)
		return
	}
	now := q.lock(r.needsTime())
	defer q.unlock()
	q.addLocked(&k, r, now)
}

func (r *request) needsTime() bool { return r.After > 0 || r.MaxDelay > 0 }

func (q *Queue[T]) findGroup(k *newKey[T]) {
	k.group = q.groupOf(k.key)
	k.groupHash = keytable.HashOf(k.group)
	k.weight = 1
	if q.weightOf != nil {
		k.weight = max(1, q.weightOf(k.group))
	}
}

// addLocked adds a key. The time must be known if r needs it.
func (q *Queue[T]) addLocked(k *newKey[T], r *request, now int64) {
	if q.shuttingDown.Load() {
		return
	}
	s, e, inserted := q.keys.FindOrInsert(k.hash, k.key)
	it := &e.Value
	if r.retry {
		q.retries++
	}
	switch {
	case inserted:
		if q.minInterval > 0 {
			q.details.At(s).started = unknown
		}
		q.arriveLocked(s, it, k, r, now)
	case it.state&ready != 0:
		if r.Priority > it.priority || r.SetPriority && r.Priority != it.priority {
			q.reprioritizeLocked(s, it, r.Priority, now)
		}
	case it.state&running != 0:
		q.wishLocked(s, it, r, now)
	case it.state&waiting != 0:
		q.putOffLocked(s, it, r, now)
	default:
		q.unlinkLocked(&q.resting, it)
		q.arriveLocked(s, it, k, r, now)
	}
}

// arriveLocked adds a key that was not in the queue, and has a slot there by now.
func (q *Queue[T]) arriveLocked(s keytable.Slot, it *item, k *newKey[T], r *request, now int64) {
	if q.groupOf != nil {
		it.home = q.joinGroupLocked(k)
	}
	it.priority = r.Priority
	it.state = 0
	if now != unknown {
		q.dateLocked(s, it, now)
	} else if r.After <= 0 {
		q.addedLocked(s, now)
		q.pushLocked(s, it, now)
		return
	}
	if r.answered {
		it.state |= backoff
	}
	q.waitLocked(s, it, q.boundLocked(s, r, r.time(now)), now)
}

// putOffLocked adds a key that waits.
func (q *Queue[T]) putOffLocked(s keytable.Slot, it *item, r *request, now int64) {
	if r.SetPriority {
		it.priority = r.Priority
	} else {
		it.priority = max(it.priority, r.Priority)
	}
	before := q.due.At(s).Rank
	at := q.boundLocked(s, r, r.merge(before, it.state, now))
	it.state = r.mark(it.state)
	if at != before {
		q.due.Remove(s)
		q.waitLocked(s, it, at, now)
	}
}

// wishLocked adds a key that a worker holds: it comes again when that one is Done, or at its time if that is
// later.
func (q *Queue[T]) wishLocked(s keytable.Slot, it *item, r *request, now int64) {
	d := q.details.At(s)
	priority := r.Priority
	if r.keepPriority {
		priority = it.priority
	}
	if it.state&again == 0 || r.SetPriority {
		d.priority = priority
	} else {
		d.priority = max(d.priority, priority)
	}
	at := r.time(now)
	switch {
	case it.state&again == 0:
		it.state = running
		if r.Delay == RespectBackoff && !r.answered {
			it.state |= yields
		}
	case it.state&yields != 0 && r.answered:
		it.state &^= yields
	default:
		if r.Delay != RespectBackoff {
			it.state &^= yields
		}
		if it.state&timed == 0 {
			return
		}
		at = r.merge(q.due.At(s).Rank, it.state, now)
	}
	if it.state&dated == 0 && now != unknown {
		q.dateLocked(s, it, now)
	}
	it.state = r.mark(it.state)
	q.comeAgainLocked(s, it, q.boundLocked(s, r, at), now)
}

// comeAgainLocked makes the running key at s come again at that time instead of any other.
func (q *Queue[T]) comeAgainLocked(s keytable.Slot, it *item, at, now int64) {
	switch it.state & (again | timed) {
	case again:
		if at <= now {
			it.state &^= backoff
			return
		}
		q.wishes--
	case again | timed:
		if at == q.due.At(s).Rank {
			return
		}
		q.due.Remove(s)
	}
	if at <= now {
		q.comeAgainAtOnceLocked(s, it, now)
		return
	}
	it.state |= again | timed
	q.enterDueLocked(s, at)
}

// comeAgainAtOnceLocked makes the running key at s, which is not in due, come again when its worker is Done.
func (q *Queue[T]) comeAgainAtOnceLocked(s keytable.Slot, it *item, now int64) {
	it.state = it.state&^(timed|backoff) | again
	q.wishes++
	q.addedLocked(s, now)
}

func (q *Queue[T]) dateLocked(s keytable.Slot, it *item, now int64) {
	it.state |= dated
	q.details.At(s).added = now
}

// time returns when the key shall come, whatever was asked before.
func (r *request) time(now int64) int64 {
	if r.After <= 0 {
		return unknown
	}
	return addSaturated(now, r.After)
}

// merge returns when a key shall come that was to come at the time before.
func (r *request) merge(before int64, s state, now int64) int64 {
	at := r.time(now)
	switch {
	case r.unanswered && r.After <= 0:
		return before
	case r.Delay == Latest:
		return max(before, at)
	case r.Delay == Replace:
		return at
	case r.Delay == RespectBackoff && s&backoff != 0:
		return before
	}
	return min(before, at)
}

// mark notes in s, of a key that has a time, whether the limiter was asked for it.
func (r *request) mark(s state) state {
	switch {
	case r.answered:
		return s | backoff
	case r.Delay == Replace && !r.RateLimited:
		return s &^ backoff
	}
	return s
}

// boundLocked returns at, or the bound that MaxDelay or MinInterval set.
func (q *Queue[T]) boundLocked(s keytable.Slot, r *request, at int64) int64 {
	if r.MaxDelay > 0 && (r.Delay == Latest || r.Delay == Replace) {
		at = min(at, addSaturated(q.details.At(s).added, r.MaxDelay))
	}
	if q.minInterval > 0 {
		at = max(at, q.floorOf(s))
	}
	return at
}
