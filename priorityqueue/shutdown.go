package priorityqueue

import (
	"context"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// ShutDown also ends all pauses and intervals: see [workqueue.TypedInterface]. It waits for the goroutine of
// the queue, which ends at once. With MinInterval, or if a key waits, it goes over all keys, a few hundred
// under one lock.
func (q *Queue[T]) ShutDown() { q.shutDownAnd(func() { q.mu.EndDrain(workqueue.ErrShutDown) }) }

// ShutDownNow is ShutDown that also drops the queued keys, and returns them as DropQueued does, followed by
// the held keys that were added again. Every Get returns at once with shutdown = true. Held keys are
// finished as usual, and are not queued again. Later drains wait for their Dones alone.
func (q *Queue[T]) ShutDownNow() (dropped []T) {
	q.shutDownAnd(func() {
		q.mu.stopped = true
		q.mu.EndDrain(workqueue.ErrShutDown)
	})
	queued, again := q.dropQueued()
	return append(queued, again...)
}

// See [workqueue.TypedInterface].
func (q *Queue[T]) ShutDownWithDrain() {
	// The caller asked for no error: a ShutDown that ends the wait is as good as an empty queue.
	_ = q.drain(context.Background(), func() (again bool) {
		q.logLeft()
		q.dropLeft()
		return true // Wait on: a worker may have taken a key after all.
	})
}

// See [workqueue.Extended].
func (q *Queue[T]) ShutDownContext(ctx context.Context) error {
	return q.drain(ctx, func() (again bool) {
		q.logLeft()
		return false
	})
}

// drain shuts the queue down and waits. See [gate.Drain.WaitPatiently] for tired.
func (q *Queue[T]) drain(ctx context.Context, tired func() (again bool)) error {
	var drain *gate.Drain
	q.shutDownAnd(func() {
		q.mu.idleSince = q.config.Clock.Now()
		drain = q.mu.Drain() // If the queue is empty, unlock ends the drain at once.
	})
	return drain.WaitPatiently(ctx, q.config.Clock, q.idle, tired)
}

// idle returns for how long a queue that drains has had no held key. Keys are queued then, and nobody takes
// them.
func (q *Queue[T]) idle() time.Duration {
	q.mu.Lock()
	defer q.unlock()
	if q.mu.held > 0 {
		return 0
	}
	return q.config.Clock.Since(q.mu.idleSince)
}

// logLeft logs how many keys are queued, the first time that there are any.
func (q *Queue[T]) logLeft() {
	if n := q.Len(); n > 0 && !q.leftLogged.Swap(true) {
		gate.LogLeft(nil, q.config.Name, n)
	}
}

// dropLeft drops the queued keys, as long as no worker holds a key. So no group is at its limit.
func (q *Queue[T]) dropLeft() {
	for more := true; more; {
		more = q.dropSomeLeft()
	}
}

func (q *Queue[T]) dropSomeLeft() (more bool) {
	q.mu.Lock()
	defer q.unlock()
	for range maxPerLock {
		if q.mu.held > 0 || q.mu.order.Len() == 0 {
			return false
		}
		q.dropLocked(q.nextKeyLocked())
	}
	return true
}

// See [workqueue.TypedInterface].
func (q *Queue[T]) ShuttingDown() bool { return q.shuttingDown.Load() }

// shutDownAnd shuts the queue down, drops the keys that do not come any more, and waits for the goroutine of
// the queue. It calls whenShutLocked in the critical section after which adds have no effect.
func (q *Queue[T]) shutDownAnd(whenShutLocked func()) {
	if q.config.MinInterval > 0 {
		q.endIntervals()
	}
	for !q.tryShutDown(whenShutLocked) {
	}
	q.dropKeys()
	q.loop.Wait()
}

// tryShutDown ends up to maxPerLock pauses, queues up to maxMoved due keys, and shuts the queue down. It
// returns false if there are more: call it again.
func (q *Queue[T]) tryShutDown(whenShutLocked func()) bool {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceLocked()
	for n := 0; q.mu.pauses.ends.Len() > 0; n++ {
		if n == maxPerLock {
			return false
		}
		q.endPauseLocked(q.mu.pauses.ends.First().Slot)
	}
	if q.nextDueLocked() <= now {
		return false
	}
	q.shuttingDown.Store(true)
	whenShutLocked()
	return true
}

// dropKeys drops the keys that do not come any more. One round is enough: after shutdown no key begins to
// wait or to rest, and keys keep their slots. Every shutdown calls it, so all are dropped when any of them
// returns.
//
// It returns those of them that did not wait.
func (q *Queue[T]) dropKeys() (again []T) {
	for n, more := 0, true; more; n++ {
		again, more = q.dropSlab(n, again)
	}
	return again
}

// dropSlab drops the keys of slab n that do not come any more, and appends to keys those of them that did not
// wait. It reports whether there may be others.
func (q *Queue[T]) dropSlab(n int, keys []T) (all []T, more bool) {
	q.mu.Lock()
	defer q.unlock()
	// If nothing is left to drop, it ends the loop, however many slabs there are.
	if q.mu.due.Len() == 0 && q.mu.resting.Len() == 0 && !(q.mu.dropsQueued && q.mu.queued+q.mu.reruns > 0) {
		return keys, false
	}
	for _, s := range slices.Collect(q.mu.keys.LiveSlots(n)) {
		switch st := q.mu.keys.At(s).Value.state; {
		case st == resting:
			q.mu.lists.Remove(&q.mu.resting, s)
			q.freeLocked(s)
		case st.isInDue():
			q.dropLocked(s)
		case q.mu.dropsQueued && (st == queued || st == rerun):
			keys = append(keys, q.mu.keys.At(s).Key)
			q.dropLocked(s)
		}
	}
	return keys, true
}

func (q *Queue[T]) dropLocked(s keytable.Slot) {
	q.mu.dropped++
	q.removeLocked(s, &q.mu.keys.At(s).Value, notRead)
}

// See [workqueue.Extended]. Keys of blocked groups come last.
func (q *Queue[T]) DropQueued() (keys []T) {
	if !q.ShuttingDown() {
		return nil
	}
	keys, _ = q.dropQueued()
	return keys
}

// dropQueued drops the queued keys, and those that Done would have queued.
func (q *Queue[T]) dropQueued() (queued, again []T) {
	for more := true; more; {
		queued, more = q.dropInOrder(queued)
	}
	return queued, q.dropKeys()
}

// dropInOrder drops a few hundred queued keys, and appends them to keys. It returns false when there are
// none.
func (q *Queue[T]) dropInOrder(keys []T) (all []T, more bool) {
	q.mu.Lock()
	defer q.unlock()
	q.mu.stopped = true
	for range maxPerLock {
		var s keytable.Slot
		switch {
		case q.mu.order.Len() > 0:
			s = q.nextKeyLocked()
		case q.mu.blocked.Len() > 0:
			s = q.firstQueuedLocked(&q.mu.lines.At(q.mu.blocked.First().Slot).Value)
		default:
			q.mu.dropsQueued = true
			return keys, false
		}
		keys = append(keys, q.mu.keys.At(s).Key)
		q.dropLocked(s)
	}
	return keys, true
}
