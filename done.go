package workqueue

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/spin"
)

// Done says that the caller is finished with an item that it got from Get. If the item was added in
// the meantime, it goes to the end of the line. Done of a key that no worker holds changes nothing
// but [Stats].UnmatchedDones.
func (q *Typed[T]) Done(item T) {
	h, hashed := q.latest.Hash(item)
	if !q.latest.Several() || !spin.TryLock(&q.mu) {
		q.mu.Lock()
	}
	if q.guarded {
		q.doneGuarded(item, h, hashed)
		return
	}
	q.doneLocked(item, h, hashed)
	if q.watchers == 0 {
		q.mu.Unlock()
	} else {
		q.notifyAndUnlock()
	}
}

func (q *Typed[T]) doneGuarded(item T, h keytable.Hash, hashed bool) {
	defer q.unlock()
	q.doneLocked(item, h, hashed)
}

// DoneAndGet is Done of done and then [Typed.GetContext], under one lock: for a worker that takes one key
// after the other. If it returns an error, done is Done nevertheless.
func (q *Typed[T]) DoneAndGet(ctx context.Context, done T) (item T, err error) {
	h, hashed := q.latest.Hash(done)
	if !q.latest.Several() || !spin.TryLock(&q.mu) {
		q.mu.Lock()
	}
	if q.guarded {
		defer q.unlock()
		return q.doneAndGetLocked(ctx, done, h, hashed)
	}
	item, err = q.doneAndGetLocked(ctx, done, h, hashed)
	if q.watchers == 0 {
		q.mu.Unlock()
	} else {
		q.notifyAndUnlock()
	}
	return item, err
}

func (q *Typed[T]) doneAndGetLocked(ctx context.Context, done T, h keytable.Hash, hashed bool) (item T, err error) {
	now := q.doneLocked(done, h, hashed)
	if err := ctx.Err(); err != nil {
		return item, err
	}
	return q.getLocked(ctx, now)
}

// doneLocked is Done of item, whose hash is h if it is hashed already. It returns the time.
func (q *Typed[T]) doneLocked(item T, h keytable.Hash, hashed bool) (now time.Duration) {
	now = q.nowLocked() // before anything changes, because a clock may panic
	s, k := keytable.FindHeld(&q.keys, &q.latest, item, h, hashed)
	if k == nil || k.Value&processing == 0 {
		// Carrying on would queue a queued key a second time, and two workers would hold it
		// (kubernetes/kubernetes#141079).
		q.unmatchedDones++
		return now
	}
	q.finishLocked(s, k)
	if q.observer != nil {
		q.observeFinishLocked(s, now)
	}
	return now
}

// observeFinishLocked tells the observer that the worker of the key at s is done.
func (q *Typed[T]) observeFinishLocked(s keytable.Slot, now time.Duration) {
	q.observer.Finished(s, now)
	if q.shuttingDown.Load() {
		q.observer.Settle()
	}
	if !q.keys.HasMemory(s) {
		q.observer.Release(s)
	}
}

// finishLocked takes the key at s from its worker, and puts it back into the line if it is dirty.
func (q *Typed[T]) finishLocked(s keytable.Slot, k *entry[T]) {
	if k.Value&dirty != 0 {
		// First, so that the worker still holds the key if this panics, and may call Done again.
		q.pushLocked(s, k)
		k.Value = dirty
		q.again--
	} else {
		q.keys.Delete(s)
	}
	q.processing--
	q.latest.Ended(s)
}
