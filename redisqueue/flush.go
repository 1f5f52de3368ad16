package redisqueue

import (
	"context"
	"errors"
	"slices"

	"github.com/keyedqueue/workqueue"
)

// Flush returns nil when the server has all that this replica was asked for before: adds, Done and the rest.
// Its errors are those of AddContext, joined if several shards fail. After shutdown it returns nil if the
// server has everything, and ErrShutDown if something was dropped. In a tool (see Attach) it returns the
// server's error, once, if that has refused something since the last Flush.
func (q *Queue[T]) Flush(ctx context.Context) error {
	err := q.confirmAll(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.shards {
		err, s.refused = errors.Join(err, s.refused), nil
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
				err = errors.Join(err, q.outage())
			}
			break
		}
		if err = q.confirmAll(ctx); err != nil || !isEnding {
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
			if o.isDone() {
				encoded = append(encoded, o.key)
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

// confirmAll waits until the server has executed all operations of all shards.
func (q *Queue[T]) confirmAll(ctx context.Context) error {
	results := make([]<-chan error, len(q.shards))
	q.mu.Lock()
	for i, s := range q.shards {
		results[i] = s.confirmLocked(s.buffer.newest)
	}
	q.mu.Unlock()
	var errs []error
	for _, result := range results {
		errs = append(errs, q.wait(ctx, result))
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
		return errors.Join(ctx.Err(), q.outage())
	}
}

// confirmations are the calls that wait for the server.
type confirmations struct {
	waiting  []confirmation
	executed opSeq // all operations up to here were executed
}

// confirmation is a call that waits until the server has executed all operations up to target.
type confirmation struct {
	target opSeq
	result chan error
}

// confirmLocked returns a channel that brings nil when the server has executed all operations up to target.
func (s *shard[T]) confirmLocked(target opSeq) <-chan error {
	e, result := &s.q.mu.ending, make(chan error, 1)
	switch {
	case target <= s.confirmations.executed || e.over && !e.dropped:
		result <- nil
	case e.over || s.buffer.len() == 0 && s.underWay == nil: // It was dropped.
		result <- workqueue.ErrShutDown
	default:
		s.confirmations.waiting = append(s.confirmations.waiting, confirmation{target, result})
	}
	return result
}

// confirmExecutedLocked ends the calls that wait for no operation in the buffer. The operations of the
// last batch are applied, or back in the buffer.
func (s *shard[T]) confirmExecutedLocked() {
	s.confirmations.executed = s.buffer.executed()
	s.confirmations.waiting = slices.DeleteFunc(s.confirmations.waiting, func(c confirmation) bool {
		isExecuted := c.target <= s.confirmations.executed
		if isExecuted {
			c.result <- nil
		}
		return isExecuted
	})
}

// failConfirmationsLocked answers all, because what they wait for will not be sent any more.
func (s *shard[T]) failConfirmationsLocked(err error) {
	for _, c := range s.confirmations.waiting {
		c.result <- err
	}
	s.confirmations.waiting = nil
}
