package workqueue

import (
	"context"

	"github.com/keyedqueue/workqueue/internal/gate"
)

// ShutDown makes the queue ignore what is added from now on, and wakes every getter. Keys that are
// queued are still handed out, and then Get returns shutdown = true. Drains that wait return at once.
// ShutDown may be called any number of times, also while or after the queue is drained. It waits for
// the goroutine that refreshes metrics, if there is one, and for nothing else.
func (q *Typed[T]) ShutDown() {
	defer q.ticker.Wait()
	q.gate.Lock()
	defer q.unlock()
	q.gate.EndDrain(ErrShutDown)
	q.beginShutDownLocked()
}

// ShutDownWithDrain is ShutDown that waits until nothing is queued and nothing is being processed,
// which includes the keys that were added while workers held them. It waits forever if no worker
// takes the queued keys, or one of them never calls Done, unless ShutDown is called meanwhile. Every caller
// that waits returns. Use ShutDownContext to wait no longer than a limit.
func (q *Typed[T]) ShutDownWithDrain() {
	// The caller asked for no error: a ShutDown that ends the wait is as good as an empty queue.
	_ = q.ShutDownContext(context.Background())
}

// ShutDownContext is ShutDownWithDrain that waits no longer than until ctx is done. It returns nil
// when nothing is queued and nothing is being processed, ctx.Err() if ctx was done first, and
// ErrShutDown if a call of ShutDown ended the wait. In every case the queue is shutting down
// afterwards, hands out what is still queued, and ShutDownContext may be called again to wait on.
func (q *Typed[T]) ShutDownContext(ctx context.Context) error {
	defer q.ticker.Wait()
	return q.beginDrain().Wait(ctx)
}

// ShuttingDown reports whether one of the ShutDown methods has been called.
func (q *Typed[T]) ShuttingDown() bool { return q.shuttingDown.Load() }

// beginDrain shuts the queue down and returns what to wait for. If the queue is empty, unlock ends the drain at once.
func (q *Typed[T]) beginDrain() *gate.Drain {
	q.gate.Lock()
	defer q.unlock()
	q.beginShutDownLocked()
	return q.gate.Drain()
}

func (q *Typed[T]) beginShutDownLocked() {
	if q.shuttingDown.Swap(true) {
		return
	}
	q.ticker.Stop()
	if q.observer != nil {
		q.observer.Settle()
	}
}
