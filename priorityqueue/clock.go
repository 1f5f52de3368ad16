package priorityqueue

import (
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// The times in a queue are int64 nanoseconds since it was made. That reaches 292 years back and forth; times beyond
// are taken for the farthest.
//
// The clock is foreign code, so it is read before the queue is locked.

const (
	// unknown is the time of a caller who did not read the clock. It is before every time, so that as the
	// time for which a key waits it means: none.
	unknown int64 = math.MinInt64
	// never is the time that does not come.
	never int64 = math.MaxInt64
)

// readTime returns the time, or unknown if the caller can do without it.
func (q *Queue[T]) readTime(needed bool) int64 {
	if !needed && !q.alwaysTimed && !q.timesPending.Load() {
		return unknown
	}
	return q.elapsed()
}

// elapsed returns the time since the epoch, which is neither unknown nor never, however far off.
func (q *Queue[T]) elapsed() int64 {
	return min(max(int64(q.clock.Since(q.epoch)), unknown+1), never-1)
}

// timeOf returns t as the clock shows it.
func (q *Queue[T]) timeOf(t int64) time.Time { return q.epoch.Add(time.Duration(t)) }

// lock locks q, makes ready what is due, and returns the time. That may be unknown unless it is needed.
func (q *Queue[T]) lock(timeNeeded bool) int64 {
	now := q.readTime(timeNeeded)
	q.gate.Lock()
	q.passLocked(now)
	return now
}

// passLocked makes ready what is due at now. So a key whose time has come is there for whoever looks, also
// before the waiting loop has noticed. (Where many come due at once, the rest is left to the next caller, and
// to the loop, which goes on without a sleep.)
func (q *Queue[T]) passLocked(now int64) {
	if q.due.Len() > 0 && q.due.First().Rank <= now {
		q.moveDueLocked(now)
	}
	if q.resting.first != keytable.None {
		q.sweepLocked(now)
	}
}
