package redisqueue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
)

// This file is about answers: what the worker that holds a key says of its call. Each carries the fence of
// the hand-out, so that it changes nothing once the hand-out is over. All but Forget also mark the hand-out
// as answered (see data.lua): if its Done is missing when the lease ends, the server does what the answer
// says instead of handing the key out again. Forget does not, because an operator may call it while the
// handler runs.

// Succeed says that the call for item, which a worker of this replica holds, has succeeded. It forgets the
// failures of item, and that it was given up. It does not block. If the lease is lost, it does nothing.
func (q *Queue[T]) Succeed(item T) { q.forgetAs(codeSucceed, item) }

// Requeue is AddWithPriority as an answer of the worker that holds item: if the lease is lost, it does
// nothing.
func (q *Queue[T]) Requeue(item T, priority int, after time.Duration) {
	encoded, s := q.locate(item)
	_ = q.answer(item, encoded, s, func(s *shard[T], encoded string) *op {
		return s.newAddPriorityLocked(encoded, priority, after)
	})
}

// HandBack makes the Done that follows give item back as it came: to be handed out at once, before all queued
// keys, on any replica, with its priority, its causes and the failures that it had, and with that number as
// AtOnce of its [workqueue.HandOut]. If no worker of this replica holds item, or the lease is lost, it does
// nothing.
func (q *Queue[T]) HandBack(item T, atOnce int) {
	if h := q.holdOf(item); h != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		h.handsBack = true
		if !h.lost && atOnce != h.atOnce {
			h.shard.putLocked(newAtOnceOp(h.encoded, atOnce).byHolder(h.fence))
		}
	}
}

// opMaker makes an operation on a key of the shard. It runs under the lock.
type opMaker[T comparable] func(s *shard[T], encoded string) *op

// answer sends an operation as the answer of the worker of this replica that holds item, or as it is if none
// does. If the lease is lost it sends nothing. encoded and s are from locate; a worker may hold another
// encoding of item.
func (q *Queue[T]) answer(item T, encoded string, s *shard[T], newOp opMaker[T]) error {
	return q.whileOpen(context.Background(), func() {
		h := q.mu.held[item]
		if h == nil {
			s.putLocked(newOp(s, encoded))
			return
		}
		h.shard.expireLocked(time.Now())
		switch o := newOp(h.shard, h.encoded); {
		case !h.lost:
			h.shard.putLocked(o.byHolder(h.fence))
		case o.onResult != nil:
			o.onResult(opResult{}, leasing.ErrLost)
		}
	})
}

// hasLost reports whether a worker of this replica has item, and its lease is lost.
func (q *Queue[T]) hasLost(item T) bool {
	h := q.holdOf(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	return h != nil && h.lost
}

// leasedLocked reports whether a worker of this replica holds item. An add of such a key is executed on a
// full server too, before the Done that follows: its worker may have added it, and the key must not be lost.
func (q *Queue[T]) leasedLocked(item T) bool {
	h := q.mu.held[item]
	return h != nil && !h.lost
}

// Settle waits until the server has everything that this replica was asked to do before the call. After
// shutdown, while no worker holds a key, it waits until the replica has ended, so that the client can be
// closed. If ctx ends first, it returns ctx.Err() joined with the server's failure, and the keys whose Done
// the server may not have: unless it gets them after all, these are handed out again when the lease has
// ended. It returns [ErrNotSent] if operations were dropped.
func (q *Queue[T]) Settle(ctx context.Context) (unsettled []T, err error) {
	// Twice after shutdown: a hand-out that was under way then goes back when its batch is answered.
	for range 2 {
		q.mu.Lock()
		isEnding := q.mu.ending.stopping
		ends := isEnding && len(q.mu.held) == 0
		q.mu.Unlock()
		if ends {
			err = q.awaitEnd(ctx)
			break
		}
		err = q.confirmAll(ctx, func(s *shard[T]) *confirmation {
			return s.registerLocked(&confirmation{target: s.buffer.newest})
		})
		if err != nil || !isEnding {
			break
		}
	}
	if err == nil {
		return nil, nil
	}
	if errors.Is(err, workqueue.ErrShutDown) {
		err = ErrNotSent
	}
	return q.unsettled(), err
}

// awaitEnd waits until this replica, which is ending, has ended.
func (q *Queue[T]) awaitEnd(ctx context.Context) error {
	select {
	case <-q.ended:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), q.Info().Outage)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.ending.dropped {
		return ErrNotSent
	}
	return nil
}

// unsettled returns the keys whose Done was not sent, or not answered.
func (q *Queue[T]) unsettled() (keys []T) {
	var encoded []string
	q.mu.Lock()
	for _, s := range q.shards {
		ops := s.buffer.others
		if s.underWay != nil {
			ops = slices.Concat(s.underWay.ops, ops)
		}
		for _, o := range ops {
			if o.code == codeDone || o.code == codeHandBack {
				encoded = append(encoded, o.text[1+len(o.fence):])
			}
		}
	}
	q.mu.Unlock()
	for _, text := range encoded {
		if key, err := q.decode(text); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}
