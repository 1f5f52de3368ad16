package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/alarm"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"k8s.io/utils/clock"
)

// maxMoved is how many due keys are made ready at once: some hundred microseconds, for which everybody else
// waits. (A quarter of it would cost six hundredths where a million come due.)
const maxMoved = 1 << 10

// waitLocked makes the key at s, whose home is its group, wait until at, or makes it ready if that is past.
func (q *Queue[T]) waitLocked(s keytable.Slot, it *item, at, now int64) {
	if at <= now {
		q.addedLocked(s, now)
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

// moveDueLocked makes ready what is due at now, the earliest first, or maxMoved keys if more are. What a worker
// holds is to come again at once from then on.
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
		q.addedLocked(first.Slot, first.Rank)
		q.pushLocked(first.Slot, it, first.Rank)
	}
}

// tendLoopLocked starts the waiting loop if a key waits and there is none, and otherwise reports whether the
// loop must be told that it sleeps too long. One of the two conditions for its being called must hold.
func (q *Queue[T]) tendLoopLocked() bool {
	if !q.looping {
		q.looping = true
		// It looks at due first of all.
		q.sleepsUntil = unknown
		q.loop.Go(q.waitingLoop)
	}
	if q.told || q.due.Len() > 0 && q.due.First().Rank >= q.sleepsUntil {
		return false
	}
	q.told = true
	return true
}

// waitingLoop makes keys ready when they are due, and returns when none waits any more.
func (q *Queue[T]) waitingLoop() {
	timer := q.clock.NewTimer(alarm.MaxSleep)
	defer timer.Stop()
	told := false
	for {
		until, ok := q.beginSleep(told)
		if !ok {
			return
		}
		told = false
		if !q.setAlarm(timer, until) {
			continue
		}
		select {
		case <-timer.C():
		case <-q.changed:
			told = true
		}
	}
}

// beginSleep makes ready what is due, and returns when to look again. It returns false if no key waits, and
// then the loop counts as ended.
func (q *Queue[T]) beginSleep(told bool) (until int64, ok bool) {
	now := q.lock(true)
	defer q.unlock()
	if told {
		q.told = false
	}
	if q.due.Len() == 0 {
		q.looping = false
		return 0, false
	}
	q.sleepsUntil = q.due.First().Rank
	return min(q.sleepsUntil, addSaturated(now, alarm.MaxSleep)), true
}

// setAlarm makes timer fire at until, or returns false if that is not after now.
func (q *Queue[T]) setAlarm(timer clock.Timer, until int64) bool {
	_, isReal := q.clock.(clock.RealClock)
	return alarm.Set(timer, isReal, func() time.Duration { return time.Duration(until - q.elapsed()) })
}
