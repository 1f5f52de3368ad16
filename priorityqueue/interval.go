package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// A key that is Done or removed rests until its MinInterval is over, so that the queue knows when it was
// handed out. Keys rest in a list, in the order in which they began to rest. One at the front may keep others
// for up to a MinInterval longer than needed, which saves a heap. No timer is needed: each call forgets keys
// at the front.

// nextStartLocked returns when the key at s may be handed out again, in a queue with MinInterval.
func (q *Queue[T]) nextStartLocked(s keytable.Slot, now time.Duration) time.Duration {
	if q.mu.intervalsOver {
		return longAgo
	}
	// If the clock was set back behind the hand-out, the interval begins now.
	startedAt := &q.mu.details.At(s).startedAt
	if *startedAt > now {
		*startedAt = now
	}
	return dueloop.AddSaturated(*startedAt, q.config.MinInterval)
}

// sweepRestingLocked forgets keys at the front whose interval is over.
func (q *Queue[T]) sweepRestingLocked(now time.Duration) {
	for range maxPerLock {
		s := q.mu.resting.First()
		if s == keytable.None || q.nextStartLocked(s, now) > now {
			return
		}
		q.mu.lists.Remove(&q.mu.resting, s)
		q.freeLocked(s)
	}
}

// endIntervals makes each key come when it was asked to come, despite its interval: an event that came while
// a worker held the key must be handled before a drain ends.
func (q *Queue[T]) endIntervals() {
	q.mu.Lock()
	q.mu.intervalsOver = true // From now on no key gets another interval.
	q.unlock()
	var now time.Duration
	lock := func() { q.mu.Lock(); now = q.advanceLocked() }
	advance := func(none []struct{}, s keytable.Slot) []struct{} {
		if q.mu.keys.At(s).Value.state.isInDue() {
			due := q.mu.due.At(s)
			due.Rank = min(due.Rank, int64(max(now, *q.mu.details.At(s).askedAt()))) // A time that is past means now.
			q.mu.due.Replace(due)
		}
		return none
	}
	for range keytable.InSteps(&q.mu.keys, lock, q.unlock, advance) {
	}
}
