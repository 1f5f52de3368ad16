package redisqueue

import (
	"errors"
	"slices"
	"time"
)

// This file is about a server that does not answer, that refuses what it is asked for, or whose memory is full.

var (
	errDropped = errors.New("redisqueue: the server did not answer after shutdown")
	errFull    = errors.New("redisqueue: OOM: the server's memory is full; adds wait")
)

// The pauses between attempts grow from the first to a second.
const firstPause = 10 * time.Millisecond

func nextPause(d time.Duration) time.Duration { return min(2*d, time.Second) }

// fullRetry is how often adds are tried on a full server.
const fullRetry = 250 * time.Millisecond

// refusesAddsAt reports whether the server has refused adds a moment ago, because its memory is full.
func (s *shard[T]) refusesAddsAt(now time.Time) bool { return now.Before(s.retryAddsAt) }

// fullLocked notes whether the server's memory was full when it executed b, and puts the adds back that it has not executed. It
// reports whether it is time to drop them: after a shutdown, when the server has been full for a lease.
func (s *shard[T]) fullLocked(b *batch, r *reply, now time.Time) (drop bool) {
	if r.status != "FULL" {
		s.fullSince, s.retryAddsAt = time.Time{}, time.Time{}
		return false
	}
	if s.fullSince.IsZero() {
		s.fullSince = now
	}
	refused := slices.DeleteFunc(b.ops, func(o *op) bool { return o.kind != opAdd })
	if len(refused) > 0 || !b.noAdds {
		s.retryAddsAt = now.Add(fullRetry)
	}
	if len(refused) == 0 {
		return false
	}
	s.putBackLocked(refused)
	return s.pending[opHeld] == 0 && s.q.givesUpLocked(s.fullSince)
}

// scheduleAddsLocked lets adds be tried again on a full server.
func (s *shard[T]) scheduleAddsLocked(now time.Time) {
	if !s.fullSince.IsZero() && len(s.ops) > 0 && !s.q.mu.ending.over {
		s.timers.adds.Reset(s.retryAddsAt.Sub(now))
	}
}

// failed notes that an attempt to send a batch has failed.
func (s *shard[T]) failed(err error) {
	q := s.q
	q.mu.Lock()
	// The getters need not wait for this shard.
	q.mu.requested -= s.requested
	s.requested = 0
	q.kickOthersLocked(s)
	q.mu.Unlock()
	s.noteError(err)
}

func (s *shard[T]) noteError(err error) {
	q := s.q
	q.mu.Lock()
	first := s.outage == nil
	s.outage = err
	q.mu.totals.info.Errors++
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
		if slices.ContainsFunc(b.ops, func(o *op) bool { return o.kind == opAdd }) {
			s.noteError(errFull)
		}
		return
	}
	q := s.q
	q.mu.Lock()
	q.mu.totals.calls.observe(time.Since(b.began))
	was := s.outage
	s.outage = nil
	q.mu.Unlock()
	if was != nil {
		q.config.Logger.Info("The queue's server answers again", "queue", q.config.Name)
	}
}

func (s *shard[T]) lastError() error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	return s.outage
}

// report calls the hook and the logger.
func (q *Queue[T]) report(what string, err error) {
	q.config.Logger.Warn(what, "queue", q.config.Name, "err", err)
	if q.config.OnError != nil {
		q.config.OnError(err)
	}
}

// pause waits for d and reports whether to ask the server again. The attempts began at since.
func (q *Queue[T]) pause(d time.Duration, since time.Time) bool {
	select {
	case <-time.After(d):
	case <-q.ended:
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.givesUpLocked(since)
}

// givesUpLocked reports whether the replica is shut down, its workers hold no keys, and a lease has passed since both became so,
// and since that time.
func (q *Queue[T]) givesUpLocked(since time.Time) bool {
	e, lease := &q.mu.ending, q.config.Lease
	return e.stopping && len(q.mu.held) == 0 && time.Since(e.since) >= lease && time.Since(since) >= lease
}

// dropUnsentLocked drops what the server has not received, after it has not answered for a lease since the shutdown.
func (s *shard[T]) dropUnsentLocked(b *batch) {
	for _, o := range append(b.ops, s.ops...) {
		if o.kind == opAdd {
			s.q.mu.totals.stats.Dropped++
		}
		s.q.mu.ending.dropped = true
	}
	s.ops, s.pending = nil, [opKinds]int{}
	clear(s.adds)
	s.failConfirmationsLocked()
	s.endSessionLocked()
}
