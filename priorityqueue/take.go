package priorityqueue

import (
	"context"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Get blocks until a key can be handed out, and hands it to the caller, who must call Done with it. After
// shutdown it hands out what is still queued, waiting for a Done where a group is at its limit, and then
// returns shutdown = true.
func (q *Queue[T]) Get() (key T, shutdown bool) {
	key, _, err := q.take(nil)
	return key, err != nil
}

// GetWithPriority is Get that also returns the key's priority: that of its adds, whatever it has gained by
// Aging.
func (q *Queue[T]) GetWithPriority() (key T, priority int, shutdown bool) {
	key, priority, err := q.take(nil)
	return key, priority, err != nil
}

// GetContext is that of [workqueue.Extended].
func (q *Queue[T]) GetContext(ctx context.Context) (key T, err error) {
	if err := ctx.Err(); err != nil {
		return key, err
	}
	key, _, err = q.take(ctx.Done())
	return key, gate.PublicError(ctx, err)
}

// take waits until a key can be handed out, and takes it.
func (q *Queue[T]) take(ctxDone <-chan struct{}) (key T, priority int, err error) {
	now := q.readClockIfUsed()
	q.lockAndAdvance(now)
	defer q.unlock()
	if now, err = q.awaitLocked(ctxDone, now); err != nil {
		return key, 0, err
	}
	e := q.mu.keys.At(q.takeLocked(now))
	return e.Key, e.Value.priority, nil
}

// awaitLocked waits until a key can be handed out, or there is an error to return. It returns the time, which
// it has read again if it has slept.
func (q *Queue[T]) awaitLocked(ctxDone <-chan struct{}, now time.Duration) (time.Duration, error) {
	for !q.canTakeLocked() {
		if q.isExhaustedLocked() {
			return now, workqueue.ErrShutDown
		}
		if !q.mu.Sleep(ctxDone, func() { now = q.readClockIfUsed() }) {
			return now, gate.ErrContextDone
		}
		q.advanceLocked(now)
	}
	return now, nil
}

// takeLocked hands out the next key, and returns its slot. There must be one.
func (q *Queue[T]) takeLocked(now time.Duration) keytable.Slot {
	s := q.chooseLocked()
	info := &q.mu.keys.At(s).Value
	q.leaveLineLocked(s, info)
	info.state = processing
	q.mu.lastTaken = s
	q.mu.held++
	if q.config.Group != nil {
		q.countHeldLocked(q.groupOfLocked(s), 1)
	}
	if q.config.MinInterval > 0 {
		q.mu.details.At(s).startedAt = now
	}
	if info.noted {
		info.noted = q.mu.notes.Taken(s)
	}
	if q.observer != nil {
		q.observer.Taken(s, now)
	}
	q.mu.depths.add(info.priority, -1)
	return s
}

// GetBatch waits like GetContext until a key can be handed out, and then takes that one and others that can
// be handed out now, up to limit. The caller must call Done with each. It returns what SnapshotKey does, but
// does not ask the limiter: Requeues are the failures that the queue has counted. It panics if limit is below
// 1.
func (q *Queue[T]) GetBatch(ctx context.Context, limit int) (batch []workqueue.KeySnapshot[T], err error) {
	if limit < 1 {
		panic("priorityqueue: a batch of less than one key")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// All keys are taken at the time at which the first one is.
	now := q.readClockIfUsed()
	for more := true; more; {
		if len(batch) > 0 {
			// Without the lock, because it may move all keys of the batch.
			batch = slices.Grow(batch, min(limit-len(batch), maxPerLock))
		}
		if batch, more, err = q.takeSome(ctx.Done(), &now, batch, limit); err != nil {
			return nil, gate.PublicError(ctx, err)
		}
	}
	for i := range batch {
		batch[i].Requeues, _ = q.failures.Of(batch[i].Key)
	}
	return batch, nil
}

// takeSome appends a few hundred keys to batch, up to limit in all, and reports whether there are more. It
// waits for the first, and sets now to the time of its hand-out.
func (q *Queue[T]) takeSome(
	ctxDone <-chan struct{}, now *time.Duration, batch []workqueue.KeySnapshot[T], limit int,
) (all []workqueue.KeySnapshot[T], more bool, err error) {
	q.lockAndAdvance(*now)
	defer q.unlock()
	if len(batch) == 0 {
		if *now, err = q.awaitLocked(ctxDone, *now); err != nil {
			return nil, false, err
		}
	}
	n := min(limit-len(batch), maxPerLock, q.mu.queued-q.mu.blockedKeys)
	batch = slices.Grow(batch, n)
	for ; n > 0 && q.canTakeLocked(); n-- {
		batch = append(batch, q.snapshotLocked(q.takeLocked(*now), workqueue.KeyProcessing))
	}
	return batch, len(batch) < limit && q.canTakeLocked(), nil
}
