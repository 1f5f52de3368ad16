package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
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

// whileOpen calls f under the lock, unless ctx or this replica has ended.
func (q *Queue[T]) whileOpen(ctx context.Context, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.ending.over {
		return workqueue.ErrShutDown
	}
	f()
	return nil
}

// confirm is enqueue that waits until the server has executed the operation.
func (q *Queue[T]) confirm(ctx context.Context, item T, put func(s *shard[T], encoded string) (seq uint64)) error {
	encoded, s := q.locate(item)
	var c *confirmation
	if err := q.whileOpen(ctx, func() { c = s.confirmLocked(put(s, encoded)) }); err != nil {
		return err
	}
	return s.wait(ctx, c)
}

// confirmAll waits for what confirm returns for each shard.
func (q *Queue[T]) confirmAll(ctx context.Context, confirm func(s *shard[T]) *confirmation) error {
	confirmations := make([]*confirmation, len(q.shards))
	q.mu.Lock()
	for i, s := range q.shards {
		confirmations[i] = confirm(s)
	}
	q.mu.Unlock()
	var errs []error
	for i, s := range q.shards {
		errs = append(errs, s.wait(ctx, confirmations[i]))
	}
	return errors.Join(errs...)
}

// patience is how long methods without a context wait for the server.
const patience = time.Second

var errNoAnswer = errors.New("redisqueue: the server does not answer")

// ask sends an operation with a number as its answer, and waits for that until ctx ends or a second has passed.
func (s *shard[T]) ask(ctx context.Context, arg string) (int, error) {
	number := make(chan int, 1)
	err := s.q.whileOpen(ctx, func() {
		s.enqueueLocked(&op{kind: opOther, arg: arg, answer: func(n int) { number <- n }})
	})
	if err != nil {
		return 0, err
	}
	select {
	case n := <-number:
		return n, nil
	case <-time.After(patience):
		return 0, errors.Join(errNoAnswer, s.lastError())
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// confirmLocked returns a confirmation of all operations up to target.
func (s *shard[T]) confirmLocked(target uint64) *confirmation {
	c := &confirmation{target: target, replicated: s.q.config.WaitReplicas > 0, result: make(chan error, 1)}
	if !c.replicated && target <= s.executed {
		c.result <- nil
		return c
	}
	if c.replicated {
		c.after = s.batches + 1 // The server remembers the last batch of a session for an hour. That of a new one is asked for.
	}
	return s.awaitLocked(c)
}

// refreshLocked returns a confirmation of a batch that is built after the call, and so brings news of the queue.
func (s *shard[T]) refreshLocked() *confirmation {
	c := &confirmation{target: s.numbered, after: s.batches + 1, result: make(chan error, 1)}
	if !s.fullSince.IsZero() {
		c.target = 0 // The server refuses what is in the buffer.
	}
	s.wantsAll = true
	return s.awaitLocked(c)
}

func (s *shard[T]) awaitLocked(c *confirmation) *confirmation {
	if s.q.mu.ending.over {
		c.result <- workqueue.ErrShutDown
		return c
	}
	s.confirmations = append(s.confirmations, c)
	s.kickLocked()
	return c
}

// wait waits for a confirmation of the shard.
func (s *shard[T]) wait(ctx context.Context, c *confirmation) error {
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
			s.replicating.session = b.session
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
	session session // as of the batch that the last of them have reached
}

// replicate answers the confirmations that wait for replicas, all that have come meanwhile at once.
func (s *shard[T]) replicate() {
	q := s.q
	for {
		q.mu.Lock()
		r := &s.replicating
		waiting, session := r.waiting, r.session
		r.waiting, r.running = nil, len(waiting) > 0
		if !r.running {
			q.endLocked()
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		err := s.waitForReplicas(session)
		for _, c := range waiting {
			c.result <- err
		}
	}
}

// waitForReplicas waits until WaitReplicas replicas have what the server had when it executed the session's batch of that seq.
func (s *shard[T]) waitForReplicas(session session) error {
	began := time.Now()
	for pause := firstPause; ; pause = nextPause(pause) {
		found, replicas, err := s.askForReplicas(context.Background(), session)
		switch want := s.q.config.WaitReplicas; {
		case err != nil:
			s.failed(err)
			if !s.q.pause(pause, began) {
				return workqueue.ErrShutDown
			}
		case !found:
			return fmt.Errorf("%w: the server that has taken over does not have it", ErrNotReplicated)
		case replicas < want:
			return fmt.Errorf("%w: %d of %d", ErrNotReplicated, replicas, want)
		default:
			return nil
		}
	}
}

// askForReplicas returns whether the server has that batch, and how many of its replicas do: replicated.lua and WAIT on one
// connection, because WAIT is about what its connection has written.
func (s *shard[T]) askForReplicas(ctx context.Context, session session) (found bool, replicas int, err error) {
	q, node, keys := s.q, s.q.client, s.names.of(session.id)
	cluster, isCluster := node.(*redis.ClusterClient)
	if isCluster {
		if node, err = cluster.MasterForKey(ctx, keys[0]); err != nil {
			return false, 0, err
		}
	}
	pipe := node.Pipeline()
	has := pipe.Eval(ctx, replicatedSource, keys, session.id, session.seq)
	have := pipe.Do(ctx, "WAIT", q.config.WaitReplicas, q.config.WaitTimeout.Milliseconds())
	_, _ = pipe.Exec(ctx) // Both results have their errors.
	n, err := has.Int()
	if err == nil {
		replicas, err = have.Int()
	}
	if isCluster && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		cluster.ReloadState(ctx)
	}
	return n != 0, replicas, err
}
