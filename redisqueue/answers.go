package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// ErrNotReplicated is returned by the calls that wait for the server if fewer replicas than WaitReplicas have confirmed in time,
// or if a server has taken over that lacks what was confirmed before. Otherwise the server itself has what was added.
var ErrNotReplicated = errors.New("redisqueue: too few replicas have confirmed")

// Flush returns nil when the server, and WaitReplicas replicas of it, have all that this replica was asked for before:
// adds, Done and the rest. Its errors are those of AddContext, joined if several shards fail. After shutdown it returns nil
// if the server has everything, and ErrShutDown if something was given up or replicas would have to confirm.
func (q *Queue[T]) Flush(ctx context.Context) error {
	return q.confirmAll(ctx, func(s *shard[T]) *confirmation { return s.confirmLocked(s.buffer.newest) })
}

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

var errAnswerLost = errors.New("redisqueue: the server has done it, but its answer is lost with the lease")

var errFull = errors.New("redisqueue: OOM: the server's memory is full, and it takes no adds")

// question is an operation with a number as its answer.
type question[T comparable] struct {
	shard *shard[T]
	code  code
	key   string
}

// ask sends questions, and calls answered with the number of each and its answer, until all are answered or ctx ends.
func (q *Queue[T]) ask(ctx context.Context, questions []question[T], answered func(i, n int)) error {
	type answer struct {
		i, n int
		err  error
	}
	answers := make(chan answer, len(questions))
	err := q.whileOpen(ctx, func() {
		for i, ask := range questions {
			o := newOp(ask.code, ask.key)
			o.answer = func(n int, err error) { answers <- answer{i, n, err} }
			ask.shard.enqueueLocked(o)
		}
	})
	if err != nil {
		return err
	}
	for range questions {
		select {
		case a := <-answers:
			if a.err != nil {
				return a.err
			}
			answered(a.i, a.n)
		case <-ctx.Done():
			for len(answers) > 0 { // These were done.
				if a := <-answers; a.err == nil {
					answered(a.i, a.n)
				}
			}
			return errors.Join(ctx.Err(), q.Info().Outage)
		}
	}
	return nil
}

// confirmLocked returns a confirmation of all operations up to target.
func (s *shard[T]) confirmLocked(target uint64) *confirmation {
	c := &confirmation{target: target, replicated: s.q.config.WaitReplicas > 0, result: make(chan error, 1)}
	switch done := c.target <= s.confirmations.executed; {
	case done && !c.replicated:
		c.result <- nil
		return c
	case !done && s.q.tool && !s.sending && s.buffer.len() == 0:
		c.result <- s.server.outage // The server has refused it, and so it was dropped.
		return c
	}
	if c.replicated {
		c.after = s.batches + 1 // The server remembers the last batch of a session for an hour. That of a new one is asked for.
	}
	return s.awaitLocked(c)
}

// refreshLocked returns a confirmation of a batch that is built after the call, and so brings news of the queue.
func (s *shard[T]) refreshLocked() *confirmation {
	c := &confirmation{target: s.buffer.newest, after: s.batches + 1, result: make(chan error, 1)}
	if !s.server.fullSince.IsZero() {
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
	s.confirmations.waiting = append(s.confirmations.waiting, c)
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
		return errors.Join(ctx.Err(), s.q.Info().Outage)
	}
}

// confirmedLocked answers the confirmations that batch b has reached, or lets them wait for the server's replicas.
func (s *shard[T]) confirmedLocked(b *batch) {
	s.confirmations.waiting = slices.DeleteFunc(s.confirmations.waiting, func(c *confirmation) bool {
		switch {
		case c.target > s.confirmations.executed || c.after > b.number:
			return false
		case c.replicated:
			s.confirmations.replicating.waiting = append(s.confirmations.replicating.waiting, c)
			s.confirmations.replicating.session = b.session
		default:
			c.result <- nil
		}
		return true
	})
	if len(s.confirmations.replicating.waiting) > 0 && !s.confirmations.replicating.running {
		s.confirmations.replicating.running = true
		go s.replicate()
	}
}

// failConfirmationsLocked answers all, because what they wait for will not be sent any more.
func (s *shard[T]) failConfirmationsLocked(err error) {
	for _, c := range append(s.confirmations.waiting, s.confirmations.replicating.waiting...) {
		c.result <- err
	}
	s.confirmations.waiting, s.confirmations.replicating.waiting = nil, nil
}

// confirmations are the calls that wait for the server.
type confirmations struct {
	waiting     []*confirmation
	executed    uint64 // all operations up to here were executed
	replicating replicating
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
		r := &s.confirmations.replicating
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
	var found bool
	var replicas int
	answered := s.untilAnswered(func() (err error) {
		found, replicas, err = s.askForReplicas(context.Background(), session)
		return err
	})
	switch want := s.q.config.WaitReplicas; {
	case !answered:
		return workqueue.ErrShutDown
	case !found:
		return fmt.Errorf("%w: the server that has taken over does not have it", ErrNotReplicated)
	case replicas < want:
		return fmt.Errorf("%w: %d of %d", ErrNotReplicated, replicas, want)
	}
	return nil
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

// untilAnswered calls ask, which asks the server, until that returns no error. It reports whether it has. After a shutdown it
// gives up within a lease, once no key is held. A tool gives up when the server has answered with an error.
func (s *shard[T]) untilAnswered(ask func() error) bool {
	q, began := s.q, time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := ask()
		if err == nil {
			return true
		}
		s.failed(err)
		q.pause(pause)
		q.mu.Lock()
		givesUp := q.mu.ending.over || q.givesUpLocked(began) || q.tool && isAnswer(err)
		q.mu.Unlock()
		if givesUp {
			return false
		}
	}
}

// isAnswer reports whether the server has answered, with an error.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// failed notes that the server has not answered, or has refused what it was asked for.
func (s *shard[T]) failed(err error) {
	q := s.q
	q.mu.Lock()
	first := s.server.outage == nil
	s.server.outage = err
	q.mu.totals.info.Errors++
	if err != errFull { // The getters need not wait for this shard.
		q.mu.requested -= s.getter.requested
		s.getter.requested = 0
		q.kickLocked()
	}
	q.mu.Unlock()
	if first {
		q.config.Logger.Error("The queue's server fails", "queue", q.config.Name, "err", err)
	}
	if q.config.OnError != nil {
		q.config.OnError(err)
	}
}

// answered notes that the server has executed a batch, or all but the adds.
func (s *shard[T]) answered(b *batch, r *reply) {
	if r.status == "FULL" {
		if slices.ContainsFunc(b.ops, func(o *op) bool { return o.code.isAdd() }) {
			s.failed(errFull)
		}
		return
	}
	q := s.q
	q.mu.Lock()
	q.mu.totals.calls.observe(time.Since(b.began))
	was := s.server.outage
	s.server.outage = nil
	q.mu.Unlock()
	if was != nil {
		q.config.Logger.Info("The queue's server answers again", "queue", q.config.Name)
	}
}

// report calls the hook and the logger.
func (q *Queue[T]) report(what string, err error) {
	q.config.Logger.Warn(what, "queue", q.config.Name, "err", err)
	if q.config.OnError != nil {
		q.config.OnError(err)
	}
}

// pause waits for d, no longer than until this replica has ended.
func (q *Queue[T]) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-q.ended:
	}
}

// fullRetry is how often adds are tried on a full server.
const fullRetry = 250 * time.Millisecond

// refusesAddsAt reports whether the server has refused adds a moment ago, because its memory is full.
func (s *shard[T]) refusesAddsAt(now time.Time) bool { return now.Before(s.server.retryAddsAt) }

// fullLocked notes whether the server's memory was full when it executed b, and puts the adds back that it has not executed. It
// reports whether it is time to drop them: after a shutdown, when the server has been full for a lease.
func (s *shard[T]) fullLocked(b *batch, r *reply, now time.Time) (drop bool) {
	if r.status != "FULL" {
		s.server.fullSince, s.server.retryAddsAt = time.Time{}, time.Time{}
		return false
	}
	if s.server.fullSince.IsZero() {
		s.server.fullSince = now
	}
	refused := slices.DeleteFunc(b.ops, func(o *op) bool { return !o.code.isAdd() })
	if len(refused) > 0 || !b.noAdds {
		s.server.retryAddsAt = now.Add(fullRetry)
	}
	if len(refused) == 0 {
		return false
	}
	s.buffer.putBack(refused)
	return s.buffer.aboutHeld == 0 && s.q.givesUpLocked(s.server.fullSince)
}
