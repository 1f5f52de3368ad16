package priorityqueue

import (
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/alarm"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"k8s.io/utils/clock"
)

// maxMoved is how many due keys are made ready under one lock: a few hundred microseconds, for which all other
// calls wait. (A quarter of it would cost 6 % of the speed where a million come due.)
const maxMoved = 1 << 10

// waitLocked makes the key at s, whose home is its group, wait until at, or makes it ready if that is past.
func (q *Queue[T]) waitLocked(s keytable.Slot, it *item, at, now int64) {
	if at <= now {
		q.beginNeedLocked(s, it.priority, now)
		q.pushLocked(s, it, now)
		return
	}
	it.state = waiting | it.state&(backoff|dated)
	q.enterDueLocked(s, at)
}

// enterDueLocked puts the key at s, which is not there, into due.
func (q *Queue[T]) enterDueLocked(s keytable.Slot, at int64) {
	q.due.Push(slotheap.Entry{Rank: at, Tie: q.dueSeq, Slot: s})
	q.dueSeq++
}

// advanceLocked brings the queue up to the time now: it makes due keys ready and forgets keys that have rested. After
// shutdown nothing comes due.
func (q *Queue[T]) advanceLocked(now int64) {
	if q.due.Len() > 0 && q.due.First().Rank <= now && !q.shuttingDown.Load() {
		q.moveDueLocked(now)
	}
	if q.resting.first != keytable.None {
		q.sweepLocked(now)
	}
}

// moveDueLocked makes ready what is due at now, the earliest first, or maxMoved keys if more are. A key that a
// worker holds comes again at once from then on.
func (q *Queue[T]) moveDueLocked(now int64) {
	for n := 0; n < maxMoved && q.due.Len() > 0; n++ {
		first := q.due.First()
		if first.Rank > now {
			return
		}
		q.due.Pop()
		it := &q.keys.At(first.Slot).Value
		if it.state&running != 0 {
			q.comeAgainAtOnceLocked(first.Slot, it, first.Rank)
			continue
		}
		q.beginNeedLocked(first.Slot, it.priority, first.Rank)
		q.pushLocked(first.Slot, it, first.Rank)
	}
}

// tendLoopLocked starts the waiting loop if a key waits and there is none. It reports whether the loop must be
// woken, because it sleeps for too long.
func (q *Queue[T]) tendLoopLocked() (wake bool) {
	waits := q.due.Len() > 0 && !q.shuttingDown.Load()
	if waits != q.timesPending.Load() {
		q.timesPending.Store(waits)
	}
	switch {
	case waits && !q.looping:
		q.looping = true
		q.sleepsUntil = unknown // It looks at due first of all.
		q.loop.Go(q.waitingLoop)
		return false
	case waits:
		return q.due.First().Rank < q.sleepsUntil
	}
	return q.looping
}

// waitingLoop makes keys ready when they are due, and returns when none waits any more.
func (q *Queue[T]) waitingLoop() {
	ended := false
	defer func() {
		// The clock has called runtime.Goexit. Without a loop no key would ever come due again.
		if !ended {
			q.loop.Go(q.waitingLoop)
		}
	}()
	timer := q.config.Clock.NewTimer(alarm.MaxSleep)
	defer timer.Stop()
	for {
		until, ok := q.beginSleep()
		if !ok {
			ended = true
			return
		}
		if !q.setAlarm(timer, until) {
			continue
		}
		select {
		case <-timer.C():
		case <-q.wakeLoop:
		}
	}
}

// beginSleep makes ready what is due, and returns when to look again. It returns false if no key waits, and
// then the loop counts as ended.
func (q *Queue[T]) beginSleep() (until int64, ok bool) {
	now := q.readClock(true)
	q.lockAt(now)
	defer q.unlock()
	if q.due.Len() == 0 || q.shuttingDown.Load() {
		q.looping = false
		return 0, false
	}
	q.sleepsUntil = q.due.First().Rank
	return min(q.sleepsUntil, addSaturated(now, alarm.MaxSleep)), true
}

// setAlarm makes timer fire at until, or returns false if that is not after now.
func (q *Queue[T]) setAlarm(timer clock.Timer, until int64) bool {
	_, isReal := q.config.Clock.(clock.RealClock)
	return alarm.Set(timer, isReal, func() time.Duration { return time.Duration(until - q.elapsed()) })
}

// A key with which nothing more is to be done rests until its MinInterval is over, so that the queue knows when
// it was handed out. Keys rest in the order of their Dones, and each interval ends at most MinInterval after the
// Done. So a list does instead of a heap: a key may have to wait for one before it whose interval ends later, but
// that one's, too, has ended when MinInterval has passed since the later Done. No timer is needed: each call forgets
// keys from the front of the list.

// maxSwept is how many of the keys that have rested one call forgets. Two would do for a busy queue without batches.
// With batches, an add, a hand-out and a Done of maxPerLock keys take at least three locks, so that more can be
// forgotten than come to rest. After a burst, when only a scrape comes by every few seconds, two at a time would
// take weeks for a million keys, and all at once would keep other calls waiting. 256 take about ten microseconds.
const maxSwept = 256

// floorOf returns the time before which the key at s must not be handed out, in a queue with MinInterval.
func (q *Queue[T]) floorOf(s keytable.Slot) int64 {
	return addSaturated(q.details.At(s).started, q.config.MinInterval)
}

// restLocked makes the key at s, which is out of everything else, rest.
func (q *Queue[T]) restLocked(s keytable.Slot, it *item) {
	it.state = resting
	it.home = keytable.None
	q.appendLocked(&q.resting, s, it)
}

func (q *Queue[T]) sweepLocked(now int64) {
	for range maxSwept {
		s := q.resting.first
		if s == keytable.None || q.floorOf(s) > now {
			return
		}
		q.forgetRestLocked(s)
	}
}

func (q *Queue[T]) forgetRestLocked(s keytable.Slot) {
	q.unlinkLocked(&q.resting, &q.keys.At(s).Value)
	q.deleteLocked(s)
}

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
	by := int64(d)
	return min(max(t, math.MinInt64-min(by, 0)), math.MaxInt64-max(by, 0)) + by
}
