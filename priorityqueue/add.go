package priorityqueue

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// newKey is a key that is to be added, and everything that foreign code has to say about it.
type newKey[T comparable] struct {
	key           T
	hash          keytable.Hash
	groupHash     keytable.Hash
	group         string
	weight, limit int
}

// request is what an add asks for. Its policy is not DefaultDelay.
type request struct {
	AddOpts
	// keepPriority means the priority of a key that a worker holds, instead of Priority.
	keepPriority bool
	// afterFromLimiter reports that After already includes the limiter's delay.
	afterFromLimiter bool
	// limiterAsked reports that the limiter's delay is in the key's present time: it was asked for an earlier add.
	limiterAsked bool
	// retry makes the add count in Stats.Retries.
	retry bool
}

// newRequest returns what an AddWithOpts asks for.
func (q *Queue[T]) newRequest(o AddOpts) request {
	o.check()
	if o.Delay == DefaultDelay {
		o.Delay = q.config.Delay
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = q.config.MaxDelay
	}
	return request{AddOpts: o, retry: o.After > 0 || o.RateLimited}
}

// newRetry is newRequest for the adds that keep the priority of a held key and always count.
func (q *Queue[T]) newRetry(o AddOpts) request {
	r := q.newRequest(o)
	r.keepPriority, r.retry = true, true
	return r
}

// Add says that item needs processing, with priority 0. It takes constant time. After shutdown it does
// nothing. See the package comment for what it means in which state.
func (q *Queue[T]) Add(item T) {
	r := q.newRequest(AddOpts{})
	q.add(item, &r)
}

// AddAfter adds item when duration has passed, or at once if duration is not positive. A key that a worker
// holds keeps the priority with which it was handed out; any other is added with priority 0. It never
// blocks, and takes O(log n) time for n waiting keys. A key that would be due more than 292 years after the
// queue was made never comes. After shutdown AddAfter does nothing.
func (q *Queue[T]) AddAfter(item T, duration time.Duration) {
	r := q.newRetry(AddOpts{After: duration})
	q.add(item, &r)
}

// AddRateLimited adds item after the limiter's delay. A key that a worker holds keeps the priority with which
// it was handed out; any other is added with priority 0. The limiter is asked only if its answer can matter,
// so any number of AddRateLimited of a waiting key count as one failure. After shutdown AddRateLimited does
// nothing.
func (q *Queue[T]) AddRateLimited(item T) {
	r := q.newRetry(AddOpts{RateLimited: true})
	q.add(item, &r)
}

// AddWithOpts adds each of the keys as o says, one after another. It takes O(log n) time for each, where n is
// the number of waiting keys or of the priorities of the ready ones. After shutdown it does nothing. It panics
// if o.Delay is not one of the policies. If a key, Group, Weight, Limit or the limiter makes it panic, the keys
// before have been added.
func (q *Queue[T]) AddWithOpts(o AddOpts, keys ...T) {
	r := q.newRequest(o)
	for _, key := range keys {
		q.add(key, &r)
	}
}

// AddWithPriority is AddWithOpts of one key with that Priority and After, for package worker.
func (q *Queue[T]) AddWithPriority(key T, priority int, after time.Duration) {
	q.AddWithOpts(AddOpts{Priority: priority, After: after}, key)
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

// addRateLimited asks the limiter if its answer can matter, and adds the key
// (client-go charges it for every add: kubernetes/kubernetes#112325).
//
// The limiter is foreign code: it may be slow, call the queue or panic. So it is asked without the lock, and
// the key is not touched until there is an answer. Meanwhile other adds see the key as it was; those that
// want to ask for it, or for any other key, wait for asking, so that many at once ask once. When the answer comes it
// may be of no use, because the key was made ready in between. Then it is merged as any other add.
func (q *Queue[T]) addRateLimited(k *newKey[T], r *request) {
	q.asking.Lock()
	defer q.asking.Unlock()
	if !q.mustAsk(k, r) {
		return
	}
	asked := *r
	asked.afterFromLimiter = true
	delay := q.config.RateLimiter.When(k.key)
	if r.After <= 0 || delay < r.After {
		asked.After = delay
	}
	now := q.readClock(true)
	q.lockAt(now)
	defer q.unlock()
	q.addLocked(k, &asked, now)
}

// mustAsk reports whether the limiter's answer can matter to k. If not, it adds k without.
func (q *Queue[T]) mustAsk(k *newKey[T], r *request) bool {
	now := q.readClock(q.needsTime(r))
	q.lockAt(now)
	defer q.unlock()
	if q.shuttingDown.Load() {
		return false
	}
	s, e := q.keys.Find(k.hash, k.key)
	if s == keytable.None || e.Value.needsLimiter() {
		return true
	}
	unasked := *r
	unasked.limiterAsked = true
	q.addLocked(k, &unasked, now)
	return false
}

// needsLimiter reports whether it matters for how long the limiter would make the key wait.
func (it *item) needsLimiter() bool {
	switch st := it.state; {
	case st&ready != 0:
		return false
	case st&running != 0:
		return st&again == 0 || st&retryWins != 0 || st&(timed|backoff) == timed
	}
	return it.state&backoff == 0
}

// needsTime reports whether r depends on the time: its own, or that of the first add if a later one may put off
// the key.
func (q *Queue[T]) needsTime(r *request) bool {
	return r.After > 0 || r.Delay == RespectBackoff || r.MaxDelay > 0 && r.Delay.putsOff()
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
		if q.config.MinInterval > 0 {
			q.details.At(s).started = unknown
		}
		q.arriveLocked(s, it, k, r, now)
	case it.state&ready != 0:
		q.urgeLocked(s, it, &it.priority, r.Priority, r.SetPriority, now)
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
	if q.config.Group != nil {
		it.home = q.joinGroupLocked(k)
	}
	it.priority = r.Priority
	it.state = 0
	if now != unknown {
		q.dateLocked(s, it, now)
	} else { // A request that does not need the time is for now.
		q.beginNeedLocked(s, it.priority, now)
		q.pushLocked(s, it, now)
		return
	}
	if r.afterFromLimiter {
		it.state |= backoff
	}
	q.waitLocked(s, it, q.boundLocked(s, r, r.time(now)), now)
}

// urgeLocked merges the priority of an add into that of the key at s, which is ready or comes again at once.
func (q *Queue[T]) urgeLocked(s keytable.Slot, it *item, priority *int, asked int, set bool, now int64) {
	before := *priority
	if asked == before || asked < before && !set {
		return
	}
	*priority = asked
	if q.observer != nil {
		q.depths.add(before, -1)
		q.depths.add(asked, 1)
	}
	if it.state&(ready|parked) != 0 {
		q.reprioritizeLocked(s, it, asked > before, asked, now)
	}
}

// putOffLocked adds a key that waits.
func (q *Queue[T]) putOffLocked(s keytable.Slot, it *item, r *request, now int64) {
	it.priority = r.mergePriority(it.priority, r.Priority)
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
	priority := r.Priority
	if r.keepPriority {
		priority = it.priority
	}
	at := r.time(now)
	switch {
	case it.state&again == 0:
		q.details.At(s).priority = priority
		it.state = running
		if r.Delay == RespectBackoff && !r.afterFromLimiter {
			it.state |= retryWins
		}
	case it.state&retryWins != 0 && r.afterFromLimiter:
		it.state &^= retryWins
		q.urgeWishLocked(s, it, priority, r, now)
	default:
		if r.Delay != RespectBackoff {
			it.state &^= retryWins
		}
		q.urgeWishLocked(s, it, priority, r, now)
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

// urgeWishLocked merges the priority of an add into that with which the running key at s comes again.
func (q *Queue[T]) urgeWishLocked(s keytable.Slot, it *item, priority int, r *request, now int64) {
	d := q.details.At(s)
	if it.state&timed != 0 {
		d.priority = r.mergePriority(d.priority, priority)
		return
	}
	q.urgeLocked(s, it, &d.priority, priority, r.SetPriority, now)
}

// comeAgainLocked makes the running key at s come again at that time instead of any other.
func (q *Queue[T]) comeAgainLocked(s keytable.Slot, it *item, at, now int64) {
	switch it.state & (again | timed) {
	case again:
		if at <= now {
			it.state &^= backoff
			return
		}
		q.cancelWishLocked(s, it)
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
	priority := q.details.At(s).priority
	q.beginNeedLocked(s, priority, now)
	if q.config.PlaceOfAdd {
		q.enterLineLocked(s, it, priority, now)
		it.state |= parked
	}
}

// cancelWishLocked takes back comeAgainAtOnceLocked.
func (q *Queue[T]) cancelWishLocked(s keytable.Slot, it *item) {
	if it.state&parked != 0 {
		q.leaveLineLocked(s, it)
	}
	it.state &^= again | parked
	q.wishes--
	q.endNeedLocked(q.details.At(s).priority)
}

func (q *Queue[T]) dateLocked(s keytable.Slot, it *item, now int64) {
	it.state |= dated
	q.details.At(s).added = now
}

// mergePriority returns the priority of a key that has one already.
func (r *request) mergePriority(before, asked int) int {
	if r.SetPriority {
		return asked
	}
	return max(before, asked)
}

// time returns when the key is to come, whatever was asked before.
func (r *request) time(now int64) int64 {
	if r.After <= 0 {
		return unknown
	}
	return addSaturated(now, r.After)
}

// merge returns when a key is to come that was to come at the time before.
func (r *request) merge(before int64, s state, now int64) int64 {
	at := r.time(now)
	if r.limiterAsked { // Its delay is in before, and After can only shorten it.
		if at == unknown {
			at = before
		}
		at = min(before, at)
	}
	switch {
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
	case r.afterFromLimiter:
		return s | backoff
	case r.Delay == Replace && !r.RateLimited:
		return s &^ backoff
	}
	return s
}

// boundLocked returns at, or the bound that MaxDelay or MinInterval set.
func (q *Queue[T]) boundLocked(s keytable.Slot, r *request, at int64) int64 {
	if r.MaxDelay > 0 && r.Delay.putsOff() {
		at = min(at, addSaturated(q.details.At(s).added, r.MaxDelay))
	}
	if q.config.MinInterval > 0 {
		at = max(at, q.floorOf(s))
	}
	return at
}

// Forget makes the limiter forget the failures of item, whether it has succeeded or is given up. The worker
// still has to call Done.
func (q *Queue[T]) Forget(item T) { q.config.RateLimiter.Forget(item) }

// NumRequeues returns how many failures of item the limiter has counted since it was forgotten.
func (q *Queue[T]) NumRequeues(item T) int { return q.config.RateLimiter.NumRequeues(item) }
