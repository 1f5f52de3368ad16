package priorityqueue

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// See [workqueue.TypedInterface]. After shutdown it waits for a Done where a group is at its limit.
func (q *Queue[T]) Get() (key T, shutdown bool) {
	key, _, err := q.take(nil)
	return key, err != nil
}

// GetWithPriority is Get that also returns the key's priority: that of its adds, without what it has gained
// by Aging.
func (q *Queue[T]) GetWithPriority() (key T, priority int, shutdown bool) {
	key, priority, err := q.take(nil)
	return key, priority, err != nil
}

// See [workqueue.Extended].
func (q *Queue[T]) GetContext(ctx context.Context) (key T, err error) {
	if err := ctx.Err(); err != nil {
		return key, err
	}
	key, _, err = q.take(ctx.Done())
	return key, gate.PublicError(ctx, err)
}

// See [workqueue.Extended].
func (q *Queue[T]) Next(ctx context.Context) (h workqueue.HandOut[T], err error) {
	if err := ctx.Err(); err != nil {
		return h, err
	}
	if h, err = q.takeDescribed(ctx.Done()); err != nil {
		return h, gate.PublicError(ctx, err)
	}
	h.Failures = q.Failures(h.Key)
	return h, nil
}

// takeDescribed is take that also returns what the queue itself knows of the key.
func (q *Queue[T]) takeDescribed(ctxDone <-chan struct{}) (h workqueue.HandOut[T], err error) {
	q.mu.Lock()
	defer q.unlock()
	now, err := q.awaitLocked(ctxDone)
	if err != nil {
		return h, err
	}
	s := q.takeLocked(now)
	e := q.mu.keys.At(s)
	h.Key, h.Priority, h.AddedAt = e.Key, e.Value.priority, q.cameAtLocked(s)
	if e.Value.noted {
		current, _ := q.mu.notes.Causes(s)
		h.HasCauses = current != nil
	}
	return h, nil
}

// take waits until a key can be handed out, and takes it.
func (q *Queue[T]) take(ctxDone <-chan struct{}) (key T, priority int, err error) {
	q.mu.Lock()
	defer q.unlock()
	now, err := q.awaitLocked(ctxDone)
	if err != nil {
		return key, 0, err
	}
	e := q.mu.keys.At(q.takeLocked(now))
	return e.Key, e.Value.priority, nil
}

// awaitLocked waits until a key can be handed out, or there is an error to return. It returns the time.
func (q *Queue[T]) awaitLocked(ctxDone <-chan struct{}) (now time.Duration, err error) {
	for now = q.advanceLocked(); !q.canTakeLocked(); now = q.advanceLocked() {
		if q.isExhaustedLocked() {
			return now, workqueue.ErrShutDown
		}
		if !q.mu.Sleep(ctxDone) {
			return now, gate.ErrContextDone
		}
	}
	return now, nil
}

// takeLocked hands out the next key, and returns its slot. There must be one.
func (q *Queue[T]) takeLocked(now time.Duration) keytable.Slot {
	s := q.nextKeyLocked()
	info := &q.mu.keys.At(s).Value
	q.leaveLineLocked(s, info) // While its state is still queued: it is counted there.
	info.state = processing
	q.mu.lastTaken = s
	q.mu.held++
	q.countHeldLocked(s, 1)
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
// be handed out, up to n. The caller must call Done with each. It returns what SnapshotKey does, but does
// not ask the limiter: Requeues are the failures that the queue has counted. It panics if n is below 1.
func (q *Queue[T]) GetBatch(ctx context.Context, n int) (batch []workqueue.KeySnapshot[T], err error) {
	if n < 1 {
		panic("priorityqueue: GetBatch of less than one key")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	batch, err = q.takeFirst(ctx.Done(), n)
	if err != nil {
		return nil, gate.PublicError(ctx, err)
	}
	for step := batch; len(step) == maxPerLock; { // There may be more.
		step = q.takeMore(n - len(batch))
		batch = append(batch, step...)
	}
	for i := range batch {
		batch[i].Failures = q.Failures(batch[i].Key)
		batch[i].Requeues = batch[i].Failures.Count
	}
	return batch, nil
}

// takeFirst waits until a key can be handed out, and takes up to n keys.
func (q *Queue[T]) takeFirst(ctxDone <-chan struct{}, n int) (snapshots[T], error) {
	q.mu.Lock()
	defer q.unlock()
	now, err := q.awaitLocked(ctxDone)
	if err != nil {
		return nil, err
	}
	return q.takeSomeLocked(now, n), nil
}

// takeMore is takeFirst without the wait.
func (q *Queue[T]) takeMore(n int) snapshots[T] {
	q.mu.Lock()
	defer q.unlock()
	return q.takeSomeLocked(q.advanceLocked(), n)
}

// takeSomeLocked takes up to n keys that can be handed out, but no more than maxPerLock.
func (q *Queue[T]) takeSomeLocked(now time.Duration, n int) snapshots[T] {
	n = min(n, maxPerLock, q.mu.queued-q.mu.blockedKeys)
	keys := make(snapshots[T], 0, n)
	for len(keys) < n && q.canTakeLocked() {
		keys = append(keys, q.snapshotLocked(q.takeLocked(now), false))
	}
	return keys
}
