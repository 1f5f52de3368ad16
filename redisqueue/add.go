package redisqueue

import (
	"context"
	"time"
)

// Add queues item, from any replica. It does not block: the key goes to a buffer, in which further adds of it
// are merged, and from there to the server as soon as the last call to it has returned. The buffer survives
// an outage of the server, but not of this process: see AddContext and Flush. Once this replica has ended,
// Add does nothing; until then, other replicas can process what handlers add that still run.
func (q *Queue[T]) Add(item T) {
	encoded, s := q.locate(item)
	_ = q.whileOpen(context.Background(), func() { s.putLocked(newAdd(encoded)) })
}

// AddContext is Add that returns nil when the server has item. That takes one round trip, shared with
// concurrent callers, or two if a call is under way. If ctx has already ended, it adds nothing. If ctx ends
// later, it returns ctx.Err(), joined with the server's failure if there is one; the add stays on its way. It
// returns ErrShutDown if Add would do nothing or the add was dropped.
func (q *Queue[T]) AddContext(ctx context.Context, item T) error {
	encoded, s := q.locate(item)
	var result <-chan error
	err := q.whileOpen(ctx, func() { result = s.confirmLocked(s.putLocked(newAdd(encoded))) })
	if err != nil {
		return err
	}
	return q.wait(ctx, result)
}

// AddAfter adds item when duration has passed on the queue's clock, or at once if duration is not positive.
// It does not block. If several replicas add a key, the earliest time counts. Delays are rounded up to
// microseconds. The key waits on the server, and any replica may get it. After shutdown AddAfter does
// nothing, as Add.
func (q *Queue[T]) AddAfter(item T, duration time.Duration) {
	q.addLater(item, func(encoded string) *op {
		if duration <= 0 {
			q.mu.totals.stats.Retries++ // as with a delay
		}
		return newAddLater(encoded, 0, duration)
	})
}

// maxPriority bounds priorities, so that places in the line stay exact.
const maxPriority = 1_000_000

// AddWithPriority adds item with a priority after a delay, or at once unless that is positive. A key
// of priority 1 is handed out before all keys of priority 0, except those that were queued more than
// Config.PriorityStep before it, one of priority 2 more than twice that, and so on: no key starves. With
// Config.Shards this holds among the keys of a shard. Of several adds for the same hand-out the highest
// priority counts; those without one have priority 0. A key that fails, or whose lease is lost, keeps its
// priority. Priorities beyond a million count as a million. It does not block. After shutdown it does
// nothing, as Add.
func (q *Queue[T]) AddWithPriority(item T, priority int, delay time.Duration) {
	q.addLater(item, func(encoded string) *op { return newAddLater(encoded, priority, delay) })
}

// addLater puts an add into the buffer that the worker of item may have asked for.
func (q *Queue[T]) addLater(item T, newOp opMaker) {
	encoded, s := q.locate(item)
	_ = q.whileOpen(context.Background(), func() {
		o := newOp(encoded)
		if h := q.mu.held[item]; h != nil && !h.lost {
			// Also a full server executes it, before the Done that follows: the key must not be lost.
			o.byHolder(noFence)
		}
		s.putLocked(o)
	})
}

// PriorityOf returns the priority with which item was handed out, if a worker of this replica holds it. For
// any other key it asks the server for up to a second, and returns 0 if that does not answer.
func (q *Queue[T]) PriorityOf(item T) int {
	if h := q.holdOf(item); h != nil {
		return h.priority
	}
	k, _ := q.SnapshotKey(item)
	return k.Priority
}

// opMaker makes an operation on a key. It runs under the lock.
type opMaker func(encoded string) *op

func newAdd(encoded string) *op { return &op{code: codeAdd, key: encoded, merges: true} }

// newAddLater returns an add with a priority after a delay, or at once unless that is positive.
func newAddLater(encoded string, priority int, delay time.Duration) *op {
	o := newAdd(encoded)
	o.priority, o.micros = max(-maxPriority, min(priority, maxPriority)), ceilMicros(delay)
	if delay > 0 {
		o.code = codeAddAfter
	} else if priority != 0 {
		o.code = codeAddPriority
	}
	return o
}

// ceilMicros returns d in microseconds, rounded up, and zero if it is negative.
func ceilMicros(d time.Duration) uint64 { return (uint64(max(d, 0)) + 999) / 1000 }
