package priorityqueue

import (
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"github.com/keyedqueue/workqueue/internal/spin"
)

// The times in a queue are int64 nanoseconds since its epoch, which is when it first read its clock. That reaches
// 292 years back and forth. A fake clock may go further, so when it has gone half as far the epoch is moved.
//
// The clock is not ours, so it is read before the queue is locked. If the epoch has moved in between, the reading is
// told from the new one.

const (
	// unknown is the time of a caller who did not read the clock. It is before every time, so that as the
	// time for which a key waits it means: none.
	unknown int64 = math.MinInt64
	// never is the time that does not come.
	never int64 = math.MaxInt64
	// farOff is how far from the epoch the clock may go before that is moved.
	farOff = 1 << 62
)

// readTime returns the time and its epoch, or unknown and nil if the caller can do without it.
func (q *Queue[T]) readTime(needed bool) (now int64, epoch *time.Time) {
	if !needed && !q.alwaysTimed && !q.timesPending.Load() {
		return unknown, nil
	}
	epoch = q.epoch.Load()
	if epoch == nil {
		first := q.clock.Now()
		q.epoch.CompareAndSwap(nil, &first)
		epoch = q.epoch.Load()
	}
	now = q.elapsed(epoch)
	if now > farOff || now < -farOff {
		epoch = q.moveEpoch(epoch)
		now = q.elapsed(epoch)
	}
	return now, epoch
}

// elapsed returns the time since epoch, which is neither unknown nor never, however far off.
func (q *Queue[T]) elapsed(epoch *time.Time) int64 {
	return min(max(int64(q.clock.Since(*epoch)), unknown+1), never-1)
}

// timeOf returns t as the clock tells it.
func (q *Queue[T]) timeOf(t int64) time.Time { return q.epoch.Load().Add(time.Duration(t)) }

// lock locks q, lets happen what time has brought, and returns the time. That may be unknown unless it is
// needed.
func (q *Queue[T]) lock(timeNeeded bool) int64 {
	now, epoch := q.readTime(timeNeeded)
	if !q.latest.Several() || !spin.TryLock(&q.mu) {
		q.mu.Lock()
	}
	now = q.sinceEpochLocked(now, epoch)
	q.passLocked(now)
	return now
}

// sinceEpochLocked returns now, which was read as the time since epoch, as the time since q.epoch.
func (q *Queue[T]) sinceEpochLocked(now int64, epoch *time.Time) int64 {
	current := q.epoch.Load()
	if epoch == nil || epoch == current {
		return now
	}
	return max(int64(epoch.Add(time.Duration(now)).Sub(*current)), unknown+1)
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

// moveEpoch makes now the epoch, unless somebody else has moved it from old, and returns the epoch.
//
// A clock that has gone back is not followed as long as there are keys: they would have to remember times
// beyond what can be told. They are late until it has come forth again.
func (q *Queue[T]) moveEpoch(old *time.Time) *time.Time {
	now := q.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	shift := int64(now.Sub(*old)) // saturates
	if q.epoch.Load() == old && (shift > 0 || q.keys.Len() == 0) {
		q.shiftLocked(max(shift, 0))
		q.epoch.Store(&now)
	}
	return q.epoch.Load()
}

// shiftLocked makes all times earlier.
func (q *Queue[T]) shiftLocked(shift int64) {
	earlier := func(t int64) int64 {
		if t == never {
			return t
		}
		return max(addSaturated(t, time.Duration(-shift)), unknown+1)
	}
	if q.keys.Len() == 0 {
		q.lastReady = unknown
	}
	q.lastReady = earlier(q.lastReady)
	q.sleepsUntil = earlier(q.sleepsUntil)
	left := q.keys.Len()
	for s := keytable.Slot(1); left > 0; s++ {
		if !q.keys.HasMemory(s) || q.keys.At(s).Value.state == 0 {
			continue
		}
		left--
		if q.alwaysTimed || q.keys.At(s).Value.state&dated != 0 {
			d := q.details.At(s)
			d.since, d.added, d.started = earlier(d.since), earlier(d.added), earlier(d.started)
		}
		if q.observer != nil {
			q.observer.Shift(s, time.Duration(shift))
		}
	}
	q.due.Rerank(func(e slotheap.Entry[uint32]) int64 { return earlier(e.Rank) })
	q.order.Rerank(func(e slotheap.Entry[int64]) int64 { return q.entryLocked(e.Slot).Rank })
}
