package redisqueue

import (
	"context"
	"time"
)

// Counts are the numbers of a whole queue, as the server has them at one moment. With several shards each has
// its own moment.
type Counts struct {
	// Queued, Processing, Again, Waiting, Paused and OldestQueued are those of [workqueue.Stats].
	Queued       int           `json:"queued"`
	Processing   int           `json:"processing"`
	Again        int           `json:"again"`
	Waiting      int           `json:"waiting"`
	OldestQueued time.Duration `json:"oldest_queued_ns"`
	// Failing is the number of keys with failures that are counted, GivenUp that of keys that are not tried
	// any more. Repaired counts the entries on the server that did not fit together, and were repaired or
	// skipped.
	Failing  int `json:"failing"`
	GivenUp  int `json:"given_up"`
	Repaired int `json:"repaired"`
	// Paused reports that nothing is handed out, until PausedUntil, or without an end if that is zero.
	// PausedBy is the [Config].Replica that has paused the queue, and PausedSince when it did.
	Paused      bool      `json:"paused"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
	PausedSince time.Time `json:"paused_since,omitzero"`
	PausedBy    string    `json:"paused_by,omitempty"`
	// Limited reports that keys are queued which the StartLimit holds back.
	Limited bool `json:"limited"`
}

// add adds the numbers of another shard.
func (c *Counts) add(other Counts) {
	c.Queued += other.Queued
	c.Processing += other.Processing
	c.Again += other.Again
	c.Waiting += other.Waiting
	c.Failing += other.Failing
	c.GivenUp += other.GivenUp
	c.Repaired += other.Repaired
	hasNoEnd := other.PausedUntil.IsZero()
	endsLater := !c.PausedUntil.IsZero() && (hasNoEnd || other.PausedUntil.After(c.PausedUntil))
	if other.Paused && (!c.Paused || endsLater) {
		c.Paused, c.PausedUntil = true, other.PausedUntil
		c.PausedSince, c.PausedBy = other.PausedSince, other.PausedBy
	}
	c.Limited = c.Limited || other.Limited
	if other.Queued > 0 { // Otherwise its oldest key has been handed out since that was read.
		c.OldestQueued = max(c.OldestQueued, other.OldestQueued)
	}
}

// Counts asks the server for the numbers of the queue, and returns none beside an error. It reads alone.
func (a *Admin) Counts(ctx context.Context) (sum Counts, err error) {
	for _, s := range a.queue.shards {
		c, err := s.readCounts(ctx)
		if err != nil {
			return Counts{}, err
		}
		sum.add(c)
	}
	return sum, nil
}

// latest makes the queue ask the server, in the background, for the numbers that its methods return at once.
type latest[T comparable] struct {
	asked time.Time // when somebody last asked for numbers
	runs  bool      // the timer runs
	timer *time.Timer
	// requeues has the keys that NumRequeues was asked for in the last minute, and that no worker holds.
	requeues map[T]*requeues
}

// requeues is what the server has said last of a key's failures.
type requeues struct {
	n               int
	asked, answered time.Time
	asking          bool
}

const (
	latestInterval = time.Second // how often the server is asked
	latestFor      = time.Minute // for how long, after the last question
)

// noteQuestionLocked makes the queue ask the server, from now on, for latestFor.
func (q *Queue[T]) noteQuestionLocked() {
	l := &q.mu.latest
	l.asked = time.Now()
	if !l.runs {
		l.runs = true
		q.askForCountsLocked()
	}
}

// askForCountsLocked asks the server for all counts, and calls itself again when the timer has run.
func (q *Queue[T]) askForCountsLocked() {
	l, now := &q.mu.latest, time.Now()
	for item, r := range l.requeues {
		if now.Sub(r.asked) > latestFor {
			delete(l.requeues, item)
		}
	}
	if now.Sub(l.asked) > latestFor || q.mu.ending.over {
		l.runs = false
		return
	}
	for _, s := range q.shards {
		if !q.mu.ending.stopping || s.session.id != "" { // Otherwise it has ended.
			s.allCounts = true
			s.kickLocked()
		}
	}
	l.timer.Reset(latestInterval)
}

// asOfLocked returns when the oldest of the shards' last full counts came; zero if one has none.
func (q *Queue[T]) asOfLocked() time.Time {
	asOf := q.shards[0].countedAt
	for _, s := range q.shards {
		if s.countedAt.Before(asOf) {
			asOf = s.countedAt
		}
	}
	return asOf
}
