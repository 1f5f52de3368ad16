package workqueue

import (
	"context"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/gate"
)

// See [TypedInterface].
func (q *Typed[T]) ShutDown() {
	defer q.ticker.Wait()
	q.mu.Lock()
	defer q.unlock()
	q.mu.EndDrain(ErrShutDown)
	q.beginShutDownLocked()
}

// See [TypedInterface].
func (q *Typed[T]) ShutDownWithDrain() {
	// The caller asked for no error: a ShutDown that ends the wait is as good as an empty queue.
	_ = q.drain(context.Background(), func() (again bool) {
		q.logLeft()
		q.dropQueued(true)
		return true // Wait on: a worker may have taken a key after all.
	})
}

// See [Extended].
func (q *Typed[T]) ShutDownContext(ctx context.Context) error {
	return q.drain(ctx, func() (again bool) {
		q.logLeft()
		return false
	})
}

func (q *Typed[T]) drain(ctx context.Context, tired func() (again bool)) error {
	defer q.ticker.Wait()
	return q.beginDrain().WaitPatiently(ctx, q.clock, q.idle, tired)
}

// See [TypedInterface].
func (q *Typed[T]) ShuttingDown() bool { return q.shuttingDown.Load() }

// beginDrain shuts the queue down and returns what to wait for. Unlock ends the drain of an empty queue.
func (q *Typed[T]) beginDrain() *gate.Drain {
	q.mu.Lock()
	defer q.unlock()
	q.beginShutDownLocked()
	q.mu.idleSince = q.clock.Now()
	return q.mu.Drain()
}

// idle returns for how long a queue that drains has had no held key. Keys are queued then, and nobody takes
// them.
func (q *Typed[T]) idle() time.Duration {
	q.mu.Lock()
	defer q.unlock()
	if q.mu.processing > 0 {
		return 0
	}
	return q.clock.Since(q.mu.idleSince)
}

// logLeft logs how many keys are queued, the first time that there are any.
func (q *Typed[T]) logLeft() {
	if n := q.Len(); n > 0 && !q.leftLogged.Swap(true) {
		gate.LogLeft(q.logger, q.name, n)
	}
}

func (q *Typed[T]) beginShutDownLocked() {
	if q.shuttingDown.Swap(true) {
		return
	}
	q.ticker.Stop()
	if q.observer != nil {
		q.observer.RefreshLast()
	}
}

// maxPerLock is how many keys are dropped under one lock.
const maxPerLock = 512

// See [Extended].
func (q *Typed[T]) DropQueued() []T { return q.dropQueued(false) }

// dropQueued drops the queued keys and returns them. With whileIdle it drops only while no worker holds a
// key. Without, Done queues nothing any more either.
func (q *Typed[T]) dropQueued(whileIdle bool) (keys []T) {
	for more := true; more; {
		keys = slices.Grow(keys, maxPerLock) // Not under the lock: it may copy millions.
		keys, more = q.dropSome(keys, whileIdle)
	}
	return keys
}

// dropSome drops a few hundred keys and appends them to keys. It returns false if there are no more to drop.
func (q *Typed[T]) dropSome(keys []T, whileIdle bool) (all []T, more bool) {
	q.mu.Lock()
	defer q.unlock()
	if !q.shuttingDown.Load() || whileIdle && q.mu.processing > 0 {
		return keys, false
	}
	q.mu.dropping = q.mu.dropping || !whileIdle
	for range maxPerLock {
		s, k := q.popLocked()
		if k == nil {
			return keys, false
		}
		keys = append(keys, k.Key)
		q.mu.dropped++
		if q.observer != nil && k.Value&dirty != 0 { // It is not dirty if it is a custom Queue's own key.
			q.observer.Canceled(s)
		}
		q.deleteLocked(s, k)
	}
	return keys, true
}
