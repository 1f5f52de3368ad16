package redisqueue

import (
	"time"

	"github.com/keyedqueue/workqueue"
)

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

// Stats returns the numbers of the queue at once. Queued, Blocked, Processing, Again, Waiting, Paused,
// PausedUntil and OldestQueued are of the whole queue, and so are those of Shared that say so: they are from
// the server's last reply, and Shared has its time. All others are of this replica, and new. From a call of
// Stats on the queue asks the server every second in the background, until nobody has called it for a minute,
// and until shutdown. [Admin.Counts] asks, and waits. The cost of Stats grows with the keys that this
// replica's workers hold.
func (q *Queue[T]) Stats() workqueue.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.noteQuestionLocked()
	return q.statsLocked(time.Now())
}

// Len returns the number of keys that are queued, on all replicas, as Stats has it.
func (q *Queue[T]) Len() int { return q.Stats().Queued }

// latestStats is Stats for a provider of metrics: a replica that has ended sees no keys any more.
func (q *Queue[T]) latestStats() workqueue.Stats {
	st := q.Stats()
	if q.isOver() {
		st.Queued, st.Processing, st.Again, st.Waiting, st.Failing = 0, 0, 0, 0, 0
	}
	return st
}

// NumRequeues returns at once how many failures of item were counted, on all replicas, since it was
// forgotten. For a key that a worker of this replica holds that is what it was handed out with, and what the
// server has answered since. For any other key it is the server's last answer, and 0 at first: each call asks
// again, in the background, but no more than once a second. With a RateLimiter NumRequeues asks that.
func (q *Queue[T]) NumRequeues(item T) int {
	if limiter := q.config.RateLimiter; limiter != nil {
		return limiter.NumRequeues(item)
	}
	encoded, s := q.locate(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.mu.held[item]; h != nil {
		return h.failures
	}
	q.noteQuestionLocked()
	r := q.mu.latest.requeues[item]
	if r == nil {
		r = &requeues{}
		q.mu.latest.requeues[item] = r
	}
	if r.asked = time.Now(); !r.asking && !q.mu.ending.over && r.asked.Sub(r.answered) >= latestInterval {
		o := newOp(codeNumRequeues, encoded)
		o.onResult = func(a opResult, err error) {
			r.asking, r.answered = false, time.Now()
			if err == nil {
				r.n = a.n
			}
		}
		r.asking = true
		s.putLocked(o)
	}
	return r.n
}

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

// asOfLocked returns when the server last had all counts of all shards, zero before that.
func (q *Queue[T]) asOfLocked() time.Time {
	asOf := q.shards[0].countedAt
	for _, s := range q.shards {
		if s.countedAt.Before(asOf) {
			asOf = s.countedAt
		}
	}
	return asOf
}
