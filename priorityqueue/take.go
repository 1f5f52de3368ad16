package priorityqueue

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Get blocks until a key can be handed out, and hands it to the caller, who must call Done with it. After shutdown it
// hands out what is still queued, waiting for a Done where a group is at its limit, and then returns shutdown = true.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, _, err := q.take(nil)
	return item, err != nil
}

// GetWithPriority is Get that also returns the key's priority: the one that it was added with, whatever it has
// gained by Aging.
func (q *Queue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, priority, err := q.take(nil)
	return item, priority, err != nil
}

// GetContext is that of [workqueue.Extended].
func (q *Queue[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	item, _, err = q.take(ctx.Done())
	return item, gate.PublicError(ctx, err)
}

// take waits until a key can be handed out, and takes it.
func (q *Queue[T]) take(done <-chan struct{}) (key T, priority int, err error) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	if now, err = q.awaitLocked(done, now); err != nil {
		return key, 0, err
	}
	e := q.mu.keys.At(q.takeLocked(now))
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

// Take is GetContext that returns everything that the queue knows of the key. If the limiter's NumRequeues panics, the
// key goes back into the queue.
func (q *Queue[T]) Take(ctx context.Context) (info Info[T], err error) {
	if err := ctx.Err(); err != nil {
		return info, err
	}
	if info, err = q.takeInfo(ctx.Done()); err != nil {
		return info, gate.PublicError(ctx, err)
	}
	one := [...]Info[T]{info}
	q.addFailures(one[:])
	return one[0], nil
}

func (q *Queue[T]) takeInfo(done <-chan struct{}) (info Info[T], err error) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	if now, err = q.awaitLocked(done, now); err != nil {
		return info, err
	}
	return q.infoLocked(q.takeLocked(now)), nil
}
