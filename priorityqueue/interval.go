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

// maxSwept is how many of the keys that have rested one call forgets: about ten microseconds of work.
const maxSwept = 256

// nextStartLocked returns when the key at s may be handed out again, in a queue with MinInterval. If the
// clock was set back since the last hand-out, the interval begins again at each call.
func (q *Queue[T]) nextStartLocked(s keytable.Slot, now time.Duration) time.Duration {
	if q.mu.intervalsOver {
		return longAgo
	}
	return dueloop.AddSaturated(min(q.mu.details.At(s).startedAt, now), q.config.MinInterval)
}

func (q *Queue[T]) sweepRestingLocked(now time.Duration) {
	for range maxSwept {
		s := q.mu.resting.First()
		if s == keytable.None || q.nextStartLocked(s, now) > now {
			return
		}
		q.mu.lists.Remove(&q.mu.resting, s)
		q.freeLocked(s)
	}
}

// endIntervals makes each key come when it is to come, whatever its interval: an event that came while a
// worker held the key must be handled before a drain ends.
func (q *Queue[T]) endIntervals(now time.Duration) {
	lock := func() {
		q.lockAndAdvance(now)
		q.mu.intervalsOver = true
	}
	end := func(none []struct{}, s keytable.Slot) []struct{} {
		if q.mu.keys.At(s).Value.state.isInDue() {
			due := q.mu.due.At(s)
			due.Rank = min(due.Rank, int64(max(now, q.dueWithoutIntervalLocked(s))))
			q.mu.due.Replace(due)
		}
		return none
	}
	for range keytable.InSteps(&q.mu.keys, lock, q.unlock, end) { // It yields nothing.
	}
}
