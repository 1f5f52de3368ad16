package priorityqueue

import (
	"math"
	"time"
)

// The times in a queue are int64 nanoseconds since it was made. That reaches 292 years back and forth; the times
// beyond count as the farthest.
//
// The clock is foreign code, so it is read before the queue is locked.

const (
	// unknown is the time of a caller that did not read the clock. It is before every other time. As the time
	// for which a key waits it means that the key does not wait.
	unknown int64 = math.MinInt64
	// never is the time that does not come.
	never int64 = math.MaxInt64
)

// readClock returns the time, or unknown if the queue has no use for it. It is called without the lock.
func (q *Queue[T]) readClock(needed bool) int64 {
	if !needed && !q.alwaysTimed && !q.timesPending.Load() {
		return unknown
	}
	return q.elapsed()
}

// elapsed returns the time since the epoch, which is neither unknown nor never, however far off.
func (q *Queue[T]) elapsed() int64 {
	return min(max(int64(q.config.Clock.Since(q.epoch)), unknown+1), never-1)
}

// timeOf returns t as the clock shows it.
func (q *Queue[T]) timeOf(t int64) time.Time { return q.epoch.Add(time.Duration(t)) }

// addSaturated returns t + d, or the nearest int64 to it.
func addSaturated(t int64, d time.Duration) int64 {
	sum := t + int64(d)
	switch {
	case t > 0 && d > 0 && sum < 0:
		return math.MaxInt64
	case t < 0 && d < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}
