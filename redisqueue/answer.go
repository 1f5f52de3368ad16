package redisqueue

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
)

// This file is about answers: what the worker that holds a key says of its call. Each is sent with the fence
// of the hand-out, so that it changes nothing once the hand-out is over. All but Forget and HandBack also
// mark the hand-out as answered (see data.lua): if its Done is missing when the lease ends, the server does
// what the answer says instead of handing the key out again. Forget does not, because an operator may call it
// while the handler runs. HandBack only says what Done will send.

// Succeed says that the call for item, which a worker of this replica holds, has succeeded. It forgets the
// failures of item, and that it was given up. It does not block. If the lease is lost, it does nothing.
func (q *Queue[T]) Succeed(item T) { q.forgetAs(codeSucceed, item) }

// Requeue is AddWithPriority as an answer of the worker that holds item: if the lease is lost, it does
// nothing.
func (q *Queue[T]) Requeue(item T, priority int, after time.Duration) {
	encoded, s := q.locate(item)
	_ = q.answer(item, encoded, s, func(encoded string) *op { return newAddLater(encoded, priority, after) })
}

// HandBack makes the Done that follows give item back as it came: to be handed out at once, before all queued
// keys, on any replica, with its priority, its causes and the failures that it had, and with that number as
// AtOnce of its [workqueue.HandOut]. The server hears of it with that Done. If no worker of this replica
// holds item, or the lease is lost, it does nothing.
func (q *Queue[T]) HandBack(item T, atOnce int) {
	if h := q.holdOf(item); h != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		h.handsBack, h.atOnce = true, atOnce
	}
}

// answer sends an operation as the answer of the worker of this replica that holds item, or as it is if none
// does. If the lease is lost it sends nothing. encoded and s are from locate; a worker may hold another
// encoding of item.
func (q *Queue[T]) answer(item T, encoded string, s *shard[T], newOp opMaker) error {
	return q.whileOpen(context.Background(), func() {
		h := q.mu.held[item]
		if h == nil {
			s.putLocked(newOp(encoded))
			return
		}
		h.shard.expireLocked(time.Now())
		switch o := newOp(h.encoded); {
		case !h.lost:
			h.shard.putLocked(o.byHolder(h.fence))
		case o.onResult != nil:
			o.onResult(opResult{}, leasing.ErrLost)
		}
	})
}
