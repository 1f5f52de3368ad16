package priorityqueue

import (
	"context"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// ShutDown makes the queue ignore what is added from now on, ends all pauses, and drops the keys that still wait for their time,
// for whatever reason; [workqueue.Stats].Dropped counts them. Queued keys are still handed out, and drains that wait return. It
// may be called any number of times. It waits for the goroutine of the queue, which ends at once. If a key waits, it goes over
// all keys, a few hundred under one lock.
func (q *Queue[T]) ShutDown() { q.shutDown(false) }

// ShutDownNow is ShutDown that also drops the queued keys: every getter returns at once with shutdown = true, and no key is
// handed out any more. Held keys are finished as usual, and do not come again. Later drains wait for their Dones alone.
func (q *Queue[T]) ShutDownNow() { q.shutDown(true) }

func (q *Queue[T]) shutDown(stop bool) {
	defer q.loop.Wait()
	q.beginShutDown(func() {
		q.mu.stopped = q.mu.stopped || stop
		q.mu.EndDrain(workqueue.ErrShutDown)
	})
}

// ShutDownWithDrain is ShutDown that waits, as [workqueue.Typed.ShutDownWithDrain] does.
func (q *Queue[T]) ShutDownWithDrain() {
	// The caller asked for no error: a ShutDown that ends the wait is as good as an empty queue.
	_ = q.ShutDownContext(context.Background())
}

// ShutDownContext is ShutDownWithDrain that waits no longer than ctx: see [workqueue.Extended].
func (q *Queue[T]) ShutDownContext(ctx context.Context) error {
	var drain *gate.Drain
	q.beginShutDown(func() { drain = q.mu.Drain() }) // If the queue is empty, unlock ends the drain at once.
	q.loop.Wait()
	return drain.Wait(ctx)
}

// ShuttingDown reports whether a method that shuts the queue down has been called.
func (q *Queue[T]) ShuttingDown() bool { return q.shuttingDown.Load() }

// beginShutDown shuts the queue down, calls andLocked under the same lock, and drops the keys that do not come any more.
func (q *Queue[T]) beginShutDown(andLocked func()) {
	now := q.readClock(false)
	for !q.tryShutDown(now, andLocked) {
	}
	for n := 0; q.dropSlab(n); n++ {
	}
}

// tryShutDown shuts the queue down, or returns false if more keys are due than one call queues: they must not be dropped.
func (q *Queue[T]) tryShutDown(now time.Duration, andLocked func()) bool {
	q.lockAt(now)
	defer q.unlock()
	if q.nextDueLocked() <= now {
		return false
	}
	q.shuttingDown.Store(true)
	q.resumeLocked()
	for _, group := range q.pausedGroupsLocked() {
		s, _ := q.mu.pauses.names.Find(keytable.HashOf(group), group)
		q.endPauseLocked(s)
	}
	andLocked()
	return true
}

// dropSlab drops those keys of slab n that do not come any more, and returns false if there is none in any slab.
// Every shutdown calls it, so all are dropped when the first one returns.
func (q *Queue[T]) dropSlab(n int) (more bool) {
	q.mu.Lock()
	defer q.unlock()
	if q.mu.due.Len() == 0 && q.mu.resting.Len() == 0 && !(q.mu.stopped && q.mu.queued+q.mu.reruns > 0) {
		return false
	}
	for _, s := range slices.Collect(q.mu.keys.LiveSlots(n)) {
		q.dropLocked(s)
	}
	return true
}

// dropLocked drops the key at s if it does not come any more.
func (q *Queue[T]) dropLocked(s keytable.Slot) {
	it := &q.mu.keys.At(s).Value
	switch it.state {
	case resting:
		q.endRestLocked(s)
		q.freeLocked(s)
		return
	case queued, rerun:
		if !q.mu.stopped {
			return
		}
	case processing:
		return
	}
	q.mu.dropped++
	q.removeLocked(s, it, unknown)
}

// DropQueued is that of [workqueue.Extended]. Keys of paused groups and of groups at their
// limit come last.
func (q *Queue[T]) DropQueued() (keys []T) {
	if !q.ShuttingDown() {
		return nil
	}
	for more := true; more; {
		keys, more = q.dropInOrder(keys)
	}
	for n := 0; q.dropSlab(n); n++ {
	}
	return keys
}

// dropInOrder drops a few hundred queued keys, and appends them to keys. It returns false when there are none.
func (q *Queue[T]) dropInOrder(keys []T) (all []T, more bool) {
	q.mu.Lock()
	defer q.unlock()
	q.mu.stopped = true
	for range maxPerLock {
		var s keytable.Slot
		switch {
		case q.mu.order.Len() > 0:
			s = q.nextLocked()
		case q.mu.blocked.Len() > 0:
			s = q.firstQueuedLocked(&q.mu.lines.At(q.mu.blocked.First().Slot).Value)
		default:
			return keys, false
		}
		keys = append(keys, q.mu.keys.At(s).Key)
		q.dropLocked(s)
	}
	return keys, true
}

// Pause is that of [workqueue.Operable]. Everything but Get goes on: keys are added, come due, and count in Len. After
// shutdown it does nothing.
func (q *Queue[T]) Pause(d time.Duration) {
	now := q.loop.Now()
	until := dueloop.AddSaturated(now, d)
	if d == workqueue.UntilResumed {
		until = dueloop.Never
	}
	q.lockAt(now)
	defer q.unlock()
	if q.shuttingDown.Load() || until <= now {
		return
	}
	if !q.mu.paused || until > q.mu.pauses.ofQueue {
		q.mu.paused, q.mu.pauses.ofQueue = true, until
	}
	q.notePauseEndLocked()
}

// Resume ends a pause. It does nothing if there is none.
func (q *Queue[T]) Resume() {
	q.mu.Lock()
	defer q.unlock()
	q.resumeLocked()
}

func (q *Queue[T]) resumeLocked() {
	q.mu.paused = false
	q.notePauseEndLocked()
}

// endNextPauseLocked ends a pause that ends at now or before: that of the queue or of a group.
func (q *Queue[T]) endNextPauseLocked(now time.Duration) {
	if q.mu.paused && q.mu.pauses.ofQueue <= now {
		q.resumeLocked()
		return
	}
	q.endPauseLocked(q.mu.pauses.ends.First().Slot)
}
