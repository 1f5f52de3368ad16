package priorityqueue

import (
	"context"
	"slices"

	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// GetBatch waits like GetContext until a key can be handed out, and then takes that one and the others that can be
// handed out now, up to limit of them. The caller must call Done with each, or DoneBatch with all. It allocates the
// slice that it returns. It panics if limit is less than one.
func (q *Queue[T]) GetBatch(ctx context.Context, limit int) ([]T, error) {
	return takeBatch(ctx, q, limit, func(s keytable.Slot) T { return q.mu.keys.At(s).Key })
}

// TakeBatch is GetBatch that returns everything that the queue knows of the keys. If the limiter's NumRequeues panics,
// they go back into the queue.
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

// giveBack queues key again, which was taken and cannot be returned to the caller, unless it is Done.
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
	}
	q.finishSlotLocked(s, &e.Value, now)
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
