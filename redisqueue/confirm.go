package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
)

// ErrNotReplicated is returned by the calls that wait for the server if fewer replicas than WaitReplicas have confirmed in time,
// or if a server has taken over that lacks what was confirmed before. Otherwise the server itself has what was added.
var ErrNotReplicated = errors.New("redisqueue: too few replicas have confirmed")

// confirmation is a call that waits for the server.
type confirmation struct {
	// target is the operation that the server must have executed, with all before it.
	target uint64
	// after is the first batch whose reply counts. A batch that was built before may have been answered before what the
	// caller wants to see.
	after uint64
	// replicated: replicas of the server must have it, too.
	replicated bool
	result     chan error
}

// confirm calls enqueue under the lock, and waits until the server has what that has put into the buffer.
func (s *shard[T]) confirm(ctx context.Context, enqueue func() (target uint64, ok bool)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.q.mu.Lock()
	target, ok := enqueue()
	if !ok {
		s.q.mu.Unlock()
		return workqueue.ErrShutDown
	}
	c := s.confirmLocked(target)
	s.q.mu.Unlock()
	return c.wait(ctx, s)
}

// confirmLocked returns a confirmation of all operations up to target.
func (s *shard[T]) confirmLocked(target uint64) *confirmation {
	c := &confirmation{target: target, replicated: s.q.config.WaitReplicas > 0, result: make(chan error, 1)}
	switch {
	case !c.replicated && target <= s.executed:
		c.result <- nil
		return c
	case s.q.mu.ending.over:
		c.result <- workqueue.ErrShutDown
		return c
	case c.replicated:
		// The server remembers the last batch of a session for an hour. That of a new one is asked for.
		c.after = s.batches + 1
	}
	s.confirmations = append(s.confirmations, c)
	s.kickLocked()
	return c
}

// refreshLocked returns a confirmation of a batch that was built after the call, and so with news of the queue.
func (s *shard[T]) refreshLocked() *confirmation {
	c := &confirmation{target: s.numbered, after: s.batches + 1, result: make(chan error, 1)}
	if s.full.full {
		c.target = 0 // The server refuses what is in the buffer.
	}
	s.confirmations = append(s.confirmations, c)
	s.wantsAll = true
	s.kickLocked()
	return c
}

func (c *confirmation) wait(ctx context.Context, s interface{ lastError() error }) error {
	select {
	case err := <-c.result:
		return err
	default:
	}
	select {
	case err := <-c.result:
		return err
	case <-ctx.Done():
		// The reason, if the server has said one, is worth more than that time is up.
		return errors.Join(ctx.Err(), s.lastError())
	}
}

// confirmedLocked answers the confirmations that batch b has reached, or lets them wait for the server's replicas.
func (s *shard[T]) confirmedLocked(b *batch) {
	kept := s.confirmations[:0]
	for _, c := range s.confirmations {
		switch {
		case c.target > s.executed || c.after > b.number:
			kept = append(kept, c)
		case c.replicated:
			s.replicating.waiting = append(s.replicating.waiting, c)
			s.replicating.session, s.replicating.seq = b.session, b.seq
		default:
			c.result <- nil
		}
	}
	clear(s.confirmations[len(kept):])
	s.confirmations = kept
	if len(s.replicating.waiting) > 0 && !s.replicating.running {
		s.replicating.running = true
		go s.replicate()
	}
}

// failConfirmationsLocked answers all, because nothing will be sent any more.
func (s *shard[T]) failConfirmationsLocked() {
	for _, c := range append(s.confirmations, s.replicating.waiting...) {
		c.result <- workqueue.ErrShutDown
	}
	s.confirmations, s.replicating.waiting = nil, nil
}

// replicating is how confirmations wait for the server's replicas. They do so beside the batches: hand-outs, Dones and leases
// do not wait for a replica.
type replicating struct {
	running bool // the goroutine that waits exists
	waiting []*confirmation
	// session and seq are the batch that the last of them have reached.
	session string
	seq     uint64
}

// replicate answers the confirmations that wait for replicas, all that have come meanwhile at once.
func (s *shard[T]) replicate() {
	q := s.q
	for {
		q.mu.Lock()
		r := &s.replicating
		waiting, session, seq := r.waiting, r.session, r.seq
		r.waiting, r.running = nil, len(waiting) > 0
		if !r.running {
			q.endLocked()
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		err := s.waitForReplicas(session, seq)
		for _, c := range waiting {
			c.result <- err
		}
	}
}

// waitForReplicas waits until WaitReplicas replicas have what the server had when it executed that batch.
func (s *shard[T]) waitForReplicas(session string, seq uint64) error {
	q := s.q
	began := time.Now()
	for pause := firstPause; ; pause = nextPause(pause) {
		found, replicas, err := q.scripts.replicated.runAndWait(
			context.Background(), q.client, s.names.of(session), []any{session, seq}, q.config.WaitReplicas, q.config.WaitTimeout)
		if n, _ := found.(int64); err == nil {
			switch {
			case n == 0:
				return fmt.Errorf("%w: the server that has taken over does not have it", ErrNotReplicated)
			case replicas < q.config.WaitReplicas:
				return fmt.Errorf("%w: %d of %d", ErrNotReplicated, replicas, q.config.WaitReplicas)
			}
			return nil
		}
		s.failed(err)
		if !q.pause(pause, began) {
			return workqueue.ErrShutDown
		}
	}
}
