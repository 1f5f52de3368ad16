package priorityqueue

import (
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// longAgo is before every other time.
const longAgo time.Duration = math.MinInt64

const (
	// notRead is the time of a caller that has not read the clock.
	notRead = longAgo
	// atOnce is the time of a key that is to come now. It is not after notRead.
	atOnce = longAgo
)

// readClockIfUsed returns the loop's time, or notRead if the queue has no use for it. Call it without the
// lock: the clock is foreign.
func (q *Queue[T]) readClockIfUsed() time.Duration {
	if !q.alwaysTimed && !q.anyWaits.Load() {
		return notRead
	}
	return q.loop.Now()
}

// dueLocked makes the key at s, which is not in a line, come at that time, instead of any other.
func (q *Queue[T]) dueLocked(s keytable.Slot, it *item, at, now time.Duration) {
	if it.state == waiting || it.state == rerunLater {
		if at == q.dueAtLocked(s) {
			return
		}
		q.mu.due.Remove(s)
	}
	held := it.state.isHeld()
	switch {
	case at > now:
		if it.state = waiting; held {
			it.state = rerunLater
		}
		q.mu.due.Push(slotheap.Entry{Rank: int64(at), Tie: q.mu.dueSeq, Slot: s})
		q.mu.dueSeq++
	case held:
		q.rerunNowLocked(s, it, now)
	default:
		q.enqueueLocked(s, it, now)
	}
}

// enqueueLocked queues the key at s, which no worker holds, at the end of the line of its priority.
func (q *Queue[T]) enqueueLocked(s keytable.Slot, it *item, now time.Duration) {
	q.countAddLocked(s, it.priority, now)
	q.joinLineLocked(s, it, it.priority, now)
	q.becomeQueuedLocked(s, it)
}

// rerunNowLocked makes the held key at s, which is not in due, come again when its worker is Done.
func (q *Queue[T]) rerunNowLocked(s keytable.Slot, it *item, now time.Duration) {
	it.state = rerun
	it.set(limited, false)
	q.mu.reruns++
	priority := q.mu.details.At(s).rerunPriority
	q.countAddLocked(s, priority, now)
	if q.config.PlaceOfAdd {
		q.joinLineLocked(s, it, priority, now)
	}
}

// cancelRerunLocked makes the key at s, in state rerun or rerunLater, one that is processing and does not
// come again.
func (q *Queue[T]) cancelRerunLocked(s keytable.Slot, it *item) {
	if it.state == rerunLater {
		q.mu.due.Remove(s)
	} else {
		q.mu.reruns--
		q.mu.depths.add(q.mu.details.At(s).rerunPriority, -1)
		if it.line != keytable.None {
			q.leaveLineLocked(s, it)
		}
	}
	it.state = processing
	it.set(limited, false)
}

// dueAtLocked returns when the key at s is due, which must be in due.
func (q *Queue[T]) dueAtLocked(s keytable.Slot) time.Duration {
	return time.Duration(q.mu.due.At(s).Rank)
}

// askedTimeLocked returns when the key at s is to come, whatever its interval. It must be in due.
func (q *Queue[T]) askedTimeLocked(s keytable.Slot) time.Duration {
	if q.config.MinInterval > 0 {
		return q.mu.details.At(s).askedTime
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

// advanceLocked brings the queue up to the time now: it queues due keys, ends pauses and forgets keys that
// have rested.
func (q *Queue[T]) advanceLocked(now time.Duration) {
	if q.nextDueLocked() <= now {
		q.moveDueLocked(now)
	}
	if q.mu.resting.Len() > 0 {
		q.sweepRestingLocked(now)
	}
}

// maxMoved is how many due keys are queued under one lock: a few hundred microseconds, for which all other
// calls wait. (A quarter of it would cost 6 % of the speed where a million come due.)
const maxMoved = 1 << 10

// moveDueLocked queues what is due at now, and ends pauses, the earliest first, up to maxMoved. A held key is
// queued at its Done.
func (q *Queue[T]) moveDueLocked(now time.Duration) {
	for n := 0; n < maxMoved; n++ {
		next := q.nextDueLocked()
		if next > now {
			return
		}
		if next == q.mu.pauseEnd {
			q.endNextPauseLocked(now)
			continue
		}
		due := q.mu.due.Pop()
		it := &q.mu.keys.At(due.Slot).Value
		if it.state == rerunLater {
			q.rerunNowLocked(due.Slot, it, time.Duration(due.Rank))
			q.interruptLocked(due.Slot, it)
		} else {
			q.enqueueLocked(due.Slot, it, time.Duration(due.Rank))
		}
	}
}

// tendLoopLocked starts the waiting loop if a key or a pause's end waits and there is none. It reports
// whether the loop must be woken.
func (q *Queue[T]) tendLoopLocked() (wake bool) {
	next := q.nextDueLocked()
	if waits := next != dueloop.Never; waits != q.anyWaits.Load() {
		q.anyWaits.Store(waits)
	}
	return q.loop.TendLocked(next)
}

// moveDue queues what is due, and returns when to look again. It returns false if no key waits.
func (q *Queue[T]) moveDue() (until time.Duration, ok bool) {
	now := q.loop.Now()
	q.lockAndAdvance(now)
	defer q.unlock()
	return q.loop.PlanLocked(now, q.nextDueLocked())
}

// A key that is Done rests until its MinInterval is over, so that the queue knows when it was handed out.
// Keys rest in the order of their Dones, in a list and not a heap: all intervals up to a key's have ended
// when MinInterval has passed since its Done. No timer is needed: each call forgets keys at the front of the
// list.

// maxSwept is how many of the keys that have rested one call forgets: more than come to rest, also with
// batches, and so many that a million are forgotten in hours if only a scrape comes by every few seconds. 256
// take about ten microseconds.
const maxSwept = 256

// nextStartLocked returns when the key at s may be handed out again, in a queue with MinInterval.
func (q *Queue[T]) nextStartLocked(s keytable.Slot) time.Duration {
	if q.mu.intervalsOver {
		return longAgo
	}
	return dueloop.AddSaturated(q.mu.details.At(s).startedAt, q.config.MinInterval)
}

func (q *Queue[T]) sweepRestingLocked(now time.Duration) {
	for range maxSwept {
		s := q.mu.resting.First()
		if s == keytable.None || q.nextStartLocked(s) > now {
			return
		}
		q.endRestLocked(s)
		q.freeLocked(s)
	}
}

func (q *Queue[T]) endRestLocked(s keytable.Slot) { q.unlinkLocked(&q.mu.resting, s) }
