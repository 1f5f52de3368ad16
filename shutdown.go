package workqueue

import (
	"context"

	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// ShutDown makes the queue ignore adds, and Get return once nothing is queued. It may be called any number of
// times, and ends a drain. It waits for the goroutine that refreshes metrics, if any, and for nothing else.
func (q *Typed[T]) ShutDown() {
	defer q.ticker.Wait()
	q.mu.Lock()
	defer q.unlock()
	q.mu.EndDrain(ErrShutDown)
	q.beginShutDownLocked()
}

// ShutDownWithDrain shuts the queue down and waits until no key is queued or held, or ShutDown is called:
// forever if no worker takes a key, or one never calls Done. ShutDownContext has a limit.
func (q *Typed[T]) ShutDownWithDrain() {
	// The caller asked for no error: a ShutDown that ends the wait is as good as an empty queue.
	_ = q.ShutDownContext(context.Background())
}

// ShutDownContext is ShutDownWithDrain that waits no longer than ctx: see [Extended].
func (q *Typed[T]) ShutDownContext(ctx context.Context) error {
	defer q.ticker.Wait()
	return q.beginDrain().Wait(ctx)
}

// ShuttingDown reports whether the queue has been shut down.
func (q *Typed[T]) ShuttingDown() bool { return q.shuttingDown.Load() }

// beginDrain shuts the queue down and returns what to wait for. Unlock ends the drain of an empty queue.
func (q *Typed[T]) beginDrain() *gate.Drain {
	q.mu.Lock()
	defer q.unlock()
	q.beginShutDownLocked()
	return q.mu.Drain()
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

// DropQueued takes all queued keys out of a queue that is shutting down: see [Extended]. It takes a
// microsecond or two for each key. Other calls come in between.
func (q *Typed[T]) DropQueued() []T {
	var keys []T
	for more := true; more; {
		keys, more = q.dropSome(keys)
	}
	return keys
}

// dropSome drops a few hundred queued keys and appends them to keys. It returns false if there was none left.
func (q *Typed[T]) dropSome(keys []T) (all []T, more bool) {
	q.mu.Lock()
	defer q.unlock()
	if !q.shuttingDown.Load() {
		return nil, false
	}
	q.mu.dropping = true
	for range maxPerLock {
		s, k := q.popLocked()
		if k == nil {
			return keys, false
		}
		keys = append(keys, k.Key)
		q.dropLocked(s, k)
	}
	return keys, true
}

// dropLocked drops the key at s, which was just popped.
func (q *Typed[T]) dropLocked(s keytable.Slot, k *entry[T]) {
	if k.Value&noted != 0 {
		q.mu.notes.Remove(s)
	}
	wasDirty := k.Value&dirty != 0 // Not if it is a custom Queue's own key.
	q.mu.keys.Delete(s)
	q.mu.dropped++
	if q.observer != nil && wasDirty {
		q.observer.Canceled(s)
		if !q.mu.keys.HasMemory(s) {
			q.observer.Release(s)
		}
	}
}
