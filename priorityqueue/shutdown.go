package priorityqueue

import (
	"context"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// ShutDown makes the queue ignore what is added from now on, ends a pause, and drops the keys that still
// wait for their time, whatever for; [workqueue.Stats].Dropped tells how many. Keys that are queued are still handed
// out, and then Get returns shutdown = true. Drains that wait return at once. ShutDown may be called any
// number of times, also while or after the queue is drained. It waits for the goroutine of the queue,
// which ends at once, and takes time in proportion to the number of keys that it drops.
func (q *Queue[T]) ShutDown() {
	q.beginShutDown()
	q.loop.Wait()
}

func (q *Queue[T]) beginShutDown() {
	q.lock(false)
	defer q.unlock()
	q.gate.EndDrain(workqueue.ErrShutDown)
	q.beginShutDownLocked()
}

// ShutDownWithDrain is ShutDown that waits until nothing is queued and nothing is being processed, which
// includes the keys that were added while workers held them. It waits for ever if no worker takes the
// queued keys, or one of them never calls Done, unless somebody calls ShutDown. Every caller that waits
// returns. Use ShutDownContext to wait no longer than a limit.
func (q *Queue[T]) ShutDownWithDrain() {
	// Nobody to tell that a ShutDown ended the wait; the caller asked for that.
	_ = q.ShutDownContext(context.Background())
}

// ShutDownContext is ShutDownWithDrain that waits no longer than until ctx is done. It returns nil when
// nothing is queued and nothing is being processed, ctx.Err() if ctx was done first, and
// [workqueue.ErrShutDown] if a call of ShutDown ended the wait. In every case the queue is shutting down
// afterwards, hands out what is still queued, and ShutDownContext may be called again to wait on.
func (q *Queue[T]) ShutDownContext(ctx context.Context) error {
	d := q.beginDrain()
	q.loop.Wait()
	return d.Wait(ctx)
}

// ShuttingDown reports whether a method that shuts the queue down has been called.
func (q *Queue[T]) ShuttingDown() bool { return q.shuttingDown.Load() }

// beginDrain shuts the queue down and returns what to wait for. If the queue is empty, unlock ends the drain at once.
func (q *Queue[T]) beginDrain() *gate.Drain {
	q.lock(false)
	defer q.unlock()
	q.beginShutDownLocked()
	return q.gate.Drain()
}

func (q *Queue[T]) beginShutDownLocked() {
	if q.shuttingDown.Swap(true) {
		return
	}
	q.paused = false
	q.dropped += uint64(q.due.Len())
	for e := range q.due.All() {
		it := &q.keys.At(e.Slot).Value
		if it.state&running != 0 {
			it.state = running | it.state&dated
			continue
		}
		if q.groupOf != nil {
			q.leaveGroupLocked(it.home)
		}
		q.deleteLocked(e.Slot)
	}
	q.due = slotheap.Heap{}
	for q.resting.first != keytable.None {
		q.forgetRestLocked(q.resting.first)
	}
}

// Pause makes Get hand out no key until Resume or a shutdown. Everything else goes on: keys are added, come
// due, and count in Len. After shutdown it does nothing.
func (q *Queue[T]) Pause() {
	q.gate.Lock()
	defer q.unlock()
	q.paused = !q.shuttingDown.Load()
}

// Resume ends a pause. It does nothing if there is none.
func (q *Queue[T]) Resume() {
	q.gate.Lock()
	defer q.unlock()
	q.paused = false
}
