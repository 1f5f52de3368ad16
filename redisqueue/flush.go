package redisqueue

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/keyedqueue/workqueue"
)

// Flush returns nil when the server, and WaitReplicas replicas of it, have all that this replica was asked
// for before: adds, Done and the rest. Its errors are those of AddContext, joined if several shards fail.
// After shutdown it returns nil if the server has everything, and ErrShutDown if something was dropped or
// replicas would have to confirm. In a tool (see Attach) it returns the server's error, once, if that has
// refused something since the last Flush.
func (q *Queue[T]) Flush(ctx context.Context) error {
	err := q.confirmAll(ctx, func(s *shard[T]) *confirmation { return s.confirmLocked(s.buffer.newest) })
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.shards {
		err, s.refused = cmp.Or(err, s.refused), nil
	}
	return err
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
			if err = q.awaitEnd(ctx, nil); err != nil && errors.Is(err, ctx.Err()) {
				err = errors.Join(err, q.Info().Outage)
			}
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

// confirm is put that waits until the server has executed the operation.
func (q *Queue[T]) confirm(ctx context.Context, item T, put putter[T]) error {
	encoded, s := q.locate(item)
	var c *confirmation
	if err := q.whileOpen(ctx, func() { c = s.confirmLocked(put(s, encoded)) }); err != nil {
		return err
	}
	return q.wait(ctx, c.result)
}

// confirmAll calls request for each shard, and waits for all confirmations that this returns.
func (q *Queue[T]) confirmAll(ctx context.Context, request func(s *shard[T]) *confirmation) error {
	confirmations := make([]*confirmation, len(q.shards))
	q.mu.Lock()
	for i, s := range q.shards {
		confirmations[i] = request(s)
	}
	q.mu.Unlock()
	var errs []error
	for _, c := range confirmations {
		errs = append(errs, q.wait(ctx, c.result))
	}
	return errors.Join(errs...)
}

// wait returns what result brings or, if ctx ends first, ctx.Err() joined with why the server does not
// answer.
func (q *Queue[T]) wait(ctx context.Context, result <-chan error) error {
	select {
	case err := <-result:
		return err
	default:
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), q.Info().Outage)
	}
}

// confirmations are the calls that wait for the server.
type confirmations struct {
	waiting  []*confirmation
	executed opSeq // all operations up to here were executed
	// replicating have been executed and wait for the server's replicas. Batches are sent meanwhile: only
	// confirmations wait.
	replicating []*confirmation
	replicator  bool    // the goroutine that runs replicate exists
	session     session // that of the newest batch that one of replicating waits for
}

// confirmation is a call that waits until the server has executed target, with all operations before it, and
// has answered a batch with the number minBatch or more.
type confirmation struct {
	target     opSeq
	minBatch   uint64
	replicated bool // replicas of the server must also have it
	result     chan error
}

// confirmLocked returns a confirmation of all operations up to target.
func (s *shard[T]) confirmLocked(target opSeq) *confirmation {
	c := &confirmation{target: target}
	if s.q.config.WaitReplicas > 0 {
		// replicated.lua looks for a session and batchSeq. The server may have forgotten an old batch, so this
		// waits for a new one.
		c.replicated, c.minBatch = true, s.batches+1
	}
	return s.registerLocked(c)
}

// registerLocked lets c wait for its batch, or answers it at once.
func (s *shard[T]) registerLocked(c *confirmation) *confirmation {
	e := &s.q.mu.ending
	c.result = make(chan error, 1)
	switch {
	case c.minBatch == 0 && (c.target <= s.confirmations.executed || e.over && !e.dropped):
		c.result <- nil
	case e.over:
		c.result <- workqueue.ErrShutDown
	default:
		s.confirmations.waiting = append(s.confirmations.waiting, c)
		s.kickLocked()
	}
	return c
}

// answerConfirmationsLocked answers the confirmations that batch b has reached, or lets them wait for the
// server's replicas.
func (s *shard[T]) answerConfirmationsLocked(b *batch) {
	s.confirmations.waiting = slices.DeleteFunc(s.confirmations.waiting, func(c *confirmation) bool {
		switch {
		case c.target > s.confirmations.executed || c.minBatch > b.number:
			return false
		case c.replicated:
			s.confirmations.replicating = append(s.confirmations.replicating, c)
			s.confirmations.session = b.session
		default:
			c.result <- nil
		}
		return true
	})
	if len(s.confirmations.replicating) > 0 && !s.confirmations.replicator {
		s.confirmations.replicator = true
		go s.replicate()
	}
}

// failConfirmationsLocked answers all, because what they wait for will not be sent any more.
func (s *shard[T]) failConfirmationsLocked(err error) {
	for _, c := range append(s.confirmations.waiting, s.confirmations.replicating...) {
		c.result <- err
	}
	s.confirmations.waiting, s.confirmations.replicating = nil, nil
}
