package priorityqueue

import (
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

const (
	// longAgo is before every other time.
	longAgo time.Duration = math.MinInt64
	// notRead is the time of a caller that has not read the clock.
	notRead = longAgo
	// atOnce is when a key comes that has no delay. It has come at every time, notRead included.
	atOnce = longAgo
)

// scheduleLocked makes the key at s, which is not in a line, come at that time instead of the planned one.
func (q *Queue[T]) scheduleLocked(s keytable.Slot, info *keyInfo, at, now time.Duration) {
	if info.state.isInDue() {
		if at == q.dueAtLocked(s) {
			return
		}
		q.mu.due.Remove(s)
	}
	if at <= now {
		q.makeReadyLocked(s, info, now)
		return
	}
	if info.state.isHeld() {
		info.state = rerunLater
	} else {
		info.state = waiting
	}
	q.mu.due.Push(slotheap.Entry{Rank: int64(at), Tie: q.mu.dueSeq, Slot: s})
	q.mu.dueSeq++
}

// dueAtLocked returns when the key at s, which must be in due, comes.
func (q *Queue[T]) dueAtLocked(s keytable.Slot) time.Duration {
	return time.Duration(q.mu.due.At(s).Rank)
}

// dueWithoutIntervalLocked returns when the key at s is to come, regardless of its interval. It must be in
// due.
func (q *Queue[T]) dueWithoutIntervalLocked(s keytable.Slot) time.Duration {
	if q.config.MinInterval > 0 {
		return *q.mu.details.At(s).askedAt()
	}
	return q.dueAtLocked(s)
}

// nextDueLocked returns when the next key comes due or the next pause ends, or [dueloop.Never]. After
// shutdown nothing does.
func (q *Queue[T]) nextDueLocked() time.Duration {
	if q.mu.due.Len() == 0 || q.shuttingDown.Load() {
		return q.mu.pauseEnd
	}
	return min(q.mu.pauseEnd, time.Duration(q.mu.due.First().Rank))
}

// advanceLocked brings the queue up to the time, which it returns: it queues due keys, ends pauses and
// forgets keys that have rested. So each call sees what is due, also before the loop does. If the queue has
// no use for the time, it does not read the clock, and returns notRead.
func (q *Queue[T]) advanceLocked() (now time.Duration) {
	if !q.alwaysTimed && q.nextDueLocked() == dueloop.Never {
		return notRead
	}
	return q.advanceToNowLocked()
}

// advanceToNowLocked is advanceLocked that always reads the clock.
func (q *Queue[T]) advanceToNowLocked() (now time.Duration) {
	now = q.loop.Now()
	if q.nextDueLocked() <= now {
		q.moveDueLocked(now)
	}
	if q.mu.resting.Len() > 0 {
		q.sweepRestingLocked(now)
	}
	return now
}

// maxMoved is how many due keys are queued under one lock: a few hundred microseconds, for which all other
// calls wait. (A quarter of it would cost 6 % of the speed where a million come due.)
const maxMoved = 1 << 10

// moveDueLocked makes ready what is due at now, and ends pauses, the earliest first, up to maxMoved.
func (q *Queue[T]) moveDueLocked(now time.Duration) {
	for n := 0; n < maxMoved; n++ {
		next := q.nextDueLocked()
		if next > now {
			return
		}
		if next == q.mu.pauseEnd {
			q.endPauseLocked(q.mu.pauses.ends.First().Slot)
			continue
		}
		due := q.mu.due.Pop()
		q.makeReadyLocked(due.Slot, &q.mu.keys.At(due.Slot).Value, time.Duration(due.Rank))
	}
}

// moveDue queues what is due, and returns when to look again. It returns false if no key waits and no pause
// has an end.
func (q *Queue[T]) moveDue() (until time.Duration, ok bool) {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceToNowLocked()
	return q.loop.PlanLocked(now, q.nextDueLocked())
}
