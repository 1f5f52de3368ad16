package priorityqueue

import (
	"context"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/notes"
)

// Get blocks until a key can be handed out, and hands it to the caller, who must call Done with it. After shutdown it
// hands out what is still queued, waiting for a Done where a group is at its limit, and then returns shutdown = true.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, _, err := q.take(nil, nil)
	return item, err != nil
}

// GetWithPriority is Get that also returns the key's priority: that of its adds, whatever it has gained by Aging.
func (q *Queue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, priority, err := q.take(nil, nil)
	return item, priority, err != nil
}

// GetContext is that of [workqueue.Extended].
func (q *Queue[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	item, _, err = q.take(ctx.Done(), nil)
	return item, gate.PublicError(ctx, err)
}

// take waits until a key can be handed out, and takes it. It sets info to what is known of the key, unless that is nil.
func (q *Queue[T]) take(done <-chan struct{}, info *Info[T]) (key T, priority int, err error) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	if now, err = q.awaitLocked(done, now); err != nil {
		return key, 0, err
	}
	s := q.takeLocked(now)
	if info != nil {
		*info = q.infoLocked(s)
	}
	e := q.mu.keys.At(s)
	return e.Key, e.Value.priority, nil
}

// awaitLocked waits until a key can be handed out, or there is an error to return. It returns the time.
func (q *Queue[T]) awaitLocked(done <-chan struct{}, now time.Duration) (time.Duration, error) {
	for !q.canTakeLocked() {
		if q.isExhaustedLocked() {
			return now, workqueue.ErrShutDown
		}
		if !q.mu.Sleep(done, func() { now = q.readClock(false) }) {
			return now, gate.ErrContextDone
		}
		q.advanceLocked(now)
	}
	return now, nil
}

// takeLocked hands out the next key, and returns its slot. There must be one.
func (q *Queue[T]) takeLocked(now time.Duration) keytable.Slot {
	s := q.nextLocked()
	it := &q.mu.keys.At(s).Value
	q.leaveLineLocked(s, it)
	it.state = processing
	q.mu.lastTaken = s
	q.mu.held++
	if q.config.Group != nil {
		q.countHeldLocked(q.groupOfLocked(s), 1)
	}
	if q.config.MinInterval > 0 {
		q.mu.details.At(s).started = now
	}
	if it.noted {
		it.noted = q.mu.notes.Taken(s)
	}
	if q.observer != nil {
		q.observer.Taken(s, now)
	}
	q.countGoneLocked(it.priority)
	return s
}

// Done says that the caller is finished with an item from Get. If the item was added in the meantime, it is queued, or
// waits for the time that was asked for. Otherwise see [workqueue.Typed.Done].
func (q *Queue[T]) Done(item T) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	if s := q.mu.lastTaken; s != keytable.None && q.mu.keys.At(s).Key == item {
		q.finishSlotLocked(s, &q.mu.keys.At(s).Value, now)
		return
	}
	q.finishLocked(item, keytable.HashOf(item), now)
}

// finishLocked is Done of item, whose hash is h.
func (q *Queue[T]) finishLocked(item T, h keytable.Hash, now time.Duration) {
	s, e := q.mu.keys.Find(h, item)
	if e == nil || !e.Value.state.isHeld() {
		q.mu.unmatchedDones++
		return
	}
	q.finishSlotLocked(s, &e.Value, now)
}

// finishSlotLocked is Done of the held key at s.
func (q *Queue[T]) finishSlotLocked(s keytable.Slot, it *item, now time.Duration) {
	if s == q.mu.lastTaken {
		q.mu.lastTaken = keytable.None
	}
	q.mu.held--
	if q.config.Group != nil {
		q.countHeldLocked(q.groupOfLocked(s), -1)
	}
	if q.observer != nil {
		q.observer.Finished(s, now)
	}
	if it.state == rerunLater && q.shuttingDown.Load() {
		q.cancelRerunLocked(s, it)
		q.mu.dropped++
	}
	if it.state == processing {
		q.deleteLocked(s, it, now)
		return
	}
	if it.noted {
		it.noted = q.mu.notes.Done(s)
	}
	it.priority = q.mu.details.At(s).rerunPriority
	if it.state == rerunLater {
		it.state = waiting
		return
	}
	q.mu.reruns--
	if it.line == keytable.None {
		q.joinLineLocked(s, it, it.priority, now)
	}
	q.becomeQueuedLocked(s, it)
}

// AddedAgain is that of [workqueue.Extended]. An add counts when it lets the key be queued at the Done: not while
// the key still has to wait. One with a Quiet cause does not count, unless it is merged with one that is not.
func (q *Queue[T]) AddedAgain(key T) <-chan struct{} {
	h := keytable.HashOf(key)
	q.lockAt(q.readClock(false))
	defer q.unlock()
	s, it := q.findLocked(h, key)
	switch {
	case it == nil || !it.state.isHeld():
		return nil
	case q.isInterruptedLocked(s, it):
		return notes.Closed
	}
	it.noted = true
	return q.mu.notes.Await(s)
}

// isInterruptedLocked reports whether the key at s is to be queued at its Done because of an add that was not quiet.
func (q *Queue[T]) isInterruptedLocked(s keytable.Slot, it *item) bool {
	return it.state == rerun && !q.mu.details.At(s).quiet
}

// interruptLocked closes the channel of AddedAgain for the key at s if it is time.
func (q *Queue[T]) interruptLocked(s keytable.Slot, it *item) {
	if it.noted && q.isInterruptedLocked(s, it) {
		q.mu.notes.Added(s)
	}
}

// Take is GetContext that returns all that is known of the key. If the limiter's NumRequeues panics, the key goes back.
func (q *Queue[T]) Take(ctx context.Context) (info Info[T], err error) {
	if err := ctx.Err(); err != nil {
		return info, err
	}
	var one [1]Info[T]
	if _, _, err = q.take(ctx.Done(), &one[0]); err != nil {
		return info, gate.PublicError(ctx, err)
	}
	q.addFailures(one[:])
	return one[0], nil
}

// GetBatch waits like GetContext until a key can be handed out, and then takes that one and others that can be handed out now, up
// to limit. The caller must call Done with each, or DoneBatch with all. It allocates the result, and panics if limit is below 1.
func (q *Queue[T]) GetBatch(ctx context.Context, limit int) ([]T, error) {
	return takeBatch(ctx, q, limit, func(s keytable.Slot) T { return q.mu.keys.At(s).Key })
}

// TakeBatch is GetBatch that returns all that is known of the keys. If the limiter's NumRequeues panics, they go back.
func (q *Queue[T]) TakeBatch(ctx context.Context, limit int) ([]Info[T], error) {
	batch, err := takeBatch(ctx, q, limit, q.infoLocked)
	if err != nil {
		return nil, err
	}
	q.addFailures(batch)
	return batch, nil
}

// takeBatch takes keys for GetBatch or TakeBatch. It calls result, under the lock, for each.
func takeBatch[T comparable, R any](ctx context.Context, q *Queue[T], limit int, result func(keytable.Slot) R) (batch []R, err error) {
	if limit < 1 {
		panic("priorityqueue: a batch of less than one key")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	done := ctx.Done()
	now := q.readClock(false) // Once: a panic of the clock must not lose keys that were taken before.
	takeSome := func() (more bool, err error) {
		q.lockAt(now)
		defer q.unlock()
		if len(batch) == 0 {
			if now, err = q.awaitLocked(done, now); err != nil {
				return false, err
			}
		}
		n := min(limit-len(batch), maxPerLock, q.mu.queued-q.mu.blockedKeys)
		batch = slices.Grow(batch, n)
		for ; n > 0 && q.canTakeLocked(); n-- {
			batch = append(batch, result(q.takeLocked(now)))
		}
		return len(batch) < limit && q.canTakeLocked(), nil
	}
	for more := true; more; {
		if len(batch) > 0 {
			// Without the lock, because it may move all keys of the batch.
			batch = slices.Grow(batch, min(limit-len(batch), maxPerLock))
		}
		if more, err = takeSome(); err != nil {
			return nil, gate.PublicError(ctx, err)
		}
	}
	return batch, nil
}

// addFailures asks the limiter for the failures of keys that were just taken. If it panics, they go back.
func (q *Queue[T]) addFailures(infos []Info[T]) {
	complete := false
	defer func() {
		for i := 0; i < len(infos) && !complete; i++ {
			q.giveBack(infos[i].Key)
		}
	}()
	for i := range infos {
		infos[i].Failures = q.NumRequeues(infos[i].Key)
	}
	complete = true
}

// giveBack queues key again, with its causes: it was taken, and cannot be returned to the caller. It leaves alone a key that is Done.
func (q *Queue[T]) giveBack(key T) {
	h, now := keytable.HashOf(key), q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	s, e := q.mu.keys.Find(h, key)
	if e == nil || !e.Value.state.isHeld() {
		return
	}
	if !q.mu.stopped {
		again := request{AddOpts: AddOpts{Delay: Earliest}, keepPriority: true}
		q.addHeldLocked(s, &e.Value, &again, now)
		q.giveCausesBackLocked(s)
	}
	q.finishSlotLocked(s, &e.Value, now)
}

// giveCausesBackLocked puts the causes with which the key at s was handed out before those of its next hand-out.
func (q *Queue[T]) giveCausesBackLocked(s keytable.Slot) {
	current, _ := q.mu.notes.Causes(s)
	if current == nil {
		return
	}
	q.mu.notes.AddCause(s, func(next workqueue.Causes) workqueue.Causes {
		all := *current
		for _, c := range next.Last {
			all = all.Plus(c)
		}
		all.Others += next.Others
		return all
	})
}

// DoneBatch is Done of each of items, in this order. If one of them cannot be hashed, it panics before any is Done.
func (q *Queue[T]) DoneBatch(items ...T) {
	hashes := make([]keytable.Hash, len(items))
	for i, item := range items {
		hashes[i] = keytable.HashOf(item)
		keytable.CheckKey(item)
	}
	for len(items) > 0 {
		n := min(len(items), maxPerLock)
		q.finishSome(items[:n], hashes[:n])
		items, hashes = items[n:], hashes[n:]
	}
}

func (q *Queue[T]) finishSome(items []T, hashes []keytable.Hash) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	for i, item := range items {
		q.finishLocked(item, hashes[i], now)
	}
}
