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

// nextStartLocked returns when the key at s may be handed out again, in a queue with MinInterval.
func (q *Queue[T]) nextStartLocked(s keytable.Slot, now time.Duration) time.Duration {
	if q.mu.intervalsOver {
		return longAgo
	}
	// A hand-out can be later than now, which was read before the lock was taken. One that is more than an
	// interval later shows that the clock was set back: then the interval begins now.
	startedAt := &q.mu.details.At(s).startedAt
	if *startedAt > dueloop.AddSaturated(now, q.config.MinInterval) {
		*startedAt = now
	}
	return dueloop.AddSaturated(*startedAt, q.config.MinInterval)
}

// sweepRestingLocked forgets keys at the front whose interval is over.
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

// endIntervals makes each key come when it was asked to come, whatever its interval: an event that came while
// a worker held the key must be handled before a drain ends.
func (q *Queue[T]) endIntervals(now time.Duration) {
	for n := 0; q.endIntervalsOfSlab(n, now); n++ {
	}
}

// endIntervalsOfSlab does so in slab n of the table, and reports whether there are more.
func (q *Queue[T]) endIntervalsOfSlab(n int, now time.Duration) (more bool) {
	q.lockAndAdvance(now)
	defer q.unlock()
	q.mu.intervalsOver = true // From the first slab on no key gets another interval.
	for s := range q.mu.keys.LiveSlots(n) {
		if !q.mu.keys.At(s).Value.state.isInDue() {
			continue
		}
		// The time asked for may be past or atOnce: the key comes now.
		due := q.mu.due.At(s)
		due.Rank = min(due.Rank, int64(max(now, *q.mu.details.At(s).askedAt())))
		q.mu.due.Replace(due)
	}
	return n+1 < q.mu.keys.Slabs()
}
