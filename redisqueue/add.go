package redisqueue

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
)

// Add queues item, from any replica. It does not block: the key goes to a buffer, in which further adds of it
// are merged, and from there to the server as soon as the last call to it has returned. The buffer survives
// an outage of the server, but not of this process: see AddContext and Flush. Once this replica has ended,
// Add does nothing; until then, other replicas can process what handlers add that still run.
func (q *Queue[T]) Add(item T) { q.put(item, (*shard[T]).addLocked) }

// AddContext is Add that returns nil when the server has item. That takes one round trip, shared with
// concurrent callers, or two if a call is under way. If ctx has already ended, it adds nothing. If ctx ends
// later, it returns ctx.Err(), joined with the server's failure if there is one; the add stays on its way. It
// returns ErrShutDown if Add would do nothing or the add was dropped.
func (q *Queue[T]) AddContext(ctx context.Context, item T) error {
	encoded, s := q.locate(item)
	var result <-chan error
	err := q.whileOpen(ctx, func() { result = s.confirmLocked(s.addLocked(encoded)) })
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
	put := q.later(item, 0, duration)
	q.put(item, func(s *shard[T], encoded string) opSeq {
		if duration <= 0 {
			q.mu.totals.stats.Retries++ // as with a delay
		}
		return put(s, encoded)
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
	q.put(item, q.later(item, priority, delay))
}

// later returns the putter of an add with a priority after a delay, or at once unless that is positive.
func (q *Queue[T]) later(item T, priority int, delay time.Duration) putter[T] {
	return func(s *shard[T], encoded string) opSeq {
		isLeased := q.leasedLocked(item)
		if priority == 0 && delay <= 0 && !isLeased {
			return s.addLocked(encoded)
		}
		o := s.newAddLaterLocked(encoded, priority, delay)
		if isLeased {
			return s.putLocked(o.byHolder(noFence))
		}
		return s.mergeLocked(o)
	}
}

// newAddLaterLocked returns the operation of later, and prepares the shard for it. It merges.
func (s *shard[T]) newAddLaterLocked(encoded string, priority int, delay time.Duration) *op {
	o := &op{
		code: codeAddPriority, text: encoded, merges: true,
		priority: max(-maxPriority, min(priority, maxPriority)), micros: ceilMicros(delay),
	}
	if delay > 0 {
		o.code = codeAddAfter
		s.q.mu.totals.stats.Retries++
	} else {
		s.closeAddedLocked(encoded)
		s.setEmptyLocked(false)
	}
	return o
}

// mergeLocked puts an add of newAddLaterLocked into the buffer, or merges it into one of the same key. It
// returns the opSeq.
func (s *shard[T]) mergeLocked(o *op) opSeq {
	merged, isNew := s.buffer.merge(o.code, o.text)
	if isNew {
		merged.priority, merged.micros = o.priority, o.micros
		s.kickLocked()
	}
	merged.priority, merged.micros = max(merged.priority, o.priority), min(merged.micros, o.micros)
	return merged.seq
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

// putter puts an operation on a key into the buffer of its shard, and returns its opSeq. It runs under the
// lock.
type putter[T comparable] func(s *shard[T], encoded string) opSeq

// put calls putter for item, unless this replica has ended.
func (q *Queue[T]) put(item T, put putter[T]) {
	encoded, s := q.locate(item)
	_ = q.whileOpen(context.Background(), func() { put(s, encoded) })
}

// addLocked puts an add into the buffer, or merges it into one of the same key, and returns its opSeq.
func (s *shard[T]) addLocked(encoded string) opSeq { return s.addCauseLocked(encoded, nil) }

// addCauseLocked is addLocked with a cause, if that is not nil.
func (s *shard[T]) addCauseLocked(encoded string, cause *workqueue.Cause) opSeq {
	quiet := cause != nil && cause.Quiet
	if len(s.watched) > 0 && !quiet {
		s.closeAddedLocked(encoded)
	}
	o, isNew := s.buffer.merge(codeAdd, encoded)
	o.quiet = (o.quiet || isNew) && quiet
	if cause != nil {
		o.causes = o.causes.Plus(*cause)
	}
	if isNew {
		s.setEmptyLocked(false)
		s.kickLocked()
	}
	return o.seq
}

// ceilMicros returns d in microseconds, rounded up, and zero if it is negative.
func ceilMicros(d time.Duration) uint64 { return (uint64(max(d, 0)) + 999) / 1000 }
