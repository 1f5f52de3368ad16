package redisqueue

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// ErrNotReplicated is returned by the calls that wait for the server if fewer replicas than WaitReplicas have
// confirmed in time, or if a server has taken over that lacks what was confirmed before. Otherwise the server
// itself has what was added.
var ErrNotReplicated = errors.New("redisqueue: too few replicas have confirmed")

// replicate answers the confirmations that wait for the server's replicas. Those that come while it waits
// share the next wait.
func (s *shard[T]) replicate() {
	q := s.q
	for {
		q.mu.Lock()
		c := &s.confirmations
		waiting, session := c.replicating, c.session
		c.replicating = nil
		if len(waiting) == 0 {
			c.replicator = false
			q.endLocked()
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		err := s.waitForReplicas(session)
		for _, w := range waiting {
			w.result <- err
		}
	}
}

// waitForReplicas waits until WaitReplicas replicas have the session's batch, and all that came before.
func (s *shard[T]) waitForReplicas(session session) error {
	var found bool
	var replicas int
	answered := s.untilAnswered(func() (err error) {
		found, replicas, err = s.askForReplicas(session)
		return err
	})
	s.q.mu.Lock()
	if answered && s.server.outage != errFull { // A batch finds out when a full server takes adds again.
		s.noteAnswerLocked()
	}
	s.q.unlock()
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

// askForReplicas returns whether the server has that batch, and how many replicas have it. WAIT waits for
// what its own connection has written, so replicated.lua first writes something on that connection.
func (s *shard[T]) askForReplicas(session session) (found bool, replicas int, err error) {
	ctx, q, node, keys := context.Background(), s.q, s.q.blocking, s.names.of(session.id)
	cluster, isCluster := node.(*redis.ClusterClient)
	if isCluster {
		if node, err = cluster.MasterForKey(ctx, keys[0]); err != nil {
			return false, 0, err
		}
	}
	pipe := node.Pipeline()
	has := pipe.Eval(ctx, replicatedLua, keys, session.id, session.batchSeq)
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
