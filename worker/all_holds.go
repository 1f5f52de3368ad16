package worker

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// holds is what a tracker knows of all its keys on hold. The tracker's mu guards it. One goroutine, the
// tracker's loop, waits for all limits, and runs only while there are any.
type holds struct {
	limits     slotheap.Heap // when each key comes at the latest, on the loop's clock
	unfinished int           // holds whose Done has not returned
	finished   atomic.Uint64 // holds whose Done has returned; read without mu
	nextEnd    chan struct{} // is closed when finished grows; nil if nothing waits for that
	noPauses   bool          // by endPauses: no key pauses any more
	closed     bool          // by EndHolds: no key is put on hold any more
}

// unlockHolds unlocks mu after holds have changed. It wakes the loop if a limit comes earlier now. The loop
// ends when no key is on hold.
func (t *Tracker[T]) unlockHolds() {
	wake := t.loop.TendLocked(t.firstLimitLocked())
	t.mu.Unlock()
	if wake {
		t.loop.Wake()
	}
}

// firstLimitLocked returns when the first hold comes to its limit.
func (t *Tracker[T]) firstLimitLocked() time.Duration {
	if t.mu.records.holds.limits.Len() == 0 {
		return dueloop.Never
	}
	return time.Duration(t.mu.records.holds.limits.First().Rank)
}

// mostDue bounds how many holds end in one go under the lock.
const mostDue = 64

// endDue ends the holds that have come to their limits. It is the loop's moveDue: called again at the time
// that it returns.
func (t *Tracker[T]) endDue() (until time.Duration, ok bool) {
	now := t.loop.Now()
	var due []*held[T]
	var reports []func()
	t.mu.Lock()
	for len(due) < mostDue && t.firstLimitLocked() <= now {
		k := t.mu.records.table.At(t.mu.records.holds.limits.First().Slot).Value.hold
		due = append(due, k)
		if k.state != heldToPause {
			reason := k.reasonLocked(k.since) // Before finish ends the reasons.
			reports = append(reports, func() {
				t.log(context.Background(), slog.LevelWarn, "A key was held to its limit",
					"key", k.key, "held", k.until-k.since, "reason", reason)
			})
		}
		k.endLocked()
	}
	t.mu.counted.HeldToLimit += uint64(len(reports))
	until, ok = t.loop.PlanLocked(now, t.firstLimitLocked())
	t.mu.Unlock()
	for _, k := range due {
		k.finish()
	}
	for _, report := range reports { // Afterwards: the logger may be slow.
		t.catchPanic(report)
	}
	return until, ok
}

// eachHold yields the holds that are in one of states. It holds no lock meanwhile.
func (t *Tracker[T]) eachHold(states ...heldState) iter.Seq[*held[T]] {
	table := &t.mu.records.table
	return keytable.InSteps(table, t.mu.Lock, t.mu.Unlock, func(keys []*held[T], s keytable.Slot) []*held[T] {
		if k := table.At(s).Value.hold; k != nil && slices.Contains(states, k.state) {
			keys = append(keys, k)
		}
		return keys
	})
}

// endPauses ends all pauses. From now on no key pauses.
func (t *Tracker[T]) endPauses() {
	t.mu.Lock()
	ended := t.mu.records.holds.noPauses
	t.mu.records.holds.noPauses = true
	t.mu.Unlock()
	if ended { // Spares a walk over keys, which may be many.
		return
	}
	for k := range t.eachHold(heldToPause) {
		k.end()
	}
}

// nextHoldEnd returns a channel that is closed when the next Done of a key on hold has returned, or nil if no
// key is on hold.
func (t *Tracker[T]) nextHoldEnd() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	hs := &t.mu.records.holds
	if hs.nextEnd == nil && hs.unfinished > 0 {
		hs.nextEnd = make(chan struct{})
	}
	return hs.nextEnd
}

// numHeld returns how many keys are held.
func (t *Tracker[T]) numHeld() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.records.holds.unfinished
}

// heldKeys returns up to limit of the keys that are held, the one whose hold began first at the front.
func (t *Tracker[T]) heldKeys(limit int) []HeldKey[T] {
	if t.numHeld() == 0 {
		return []HeldKey[T]{}
	}
	all := t.eachHold(heldForReasons, heldToPause)
	keys := slices.SortedStableFunc(all, func(a, b *held[T]) int { return cmp.Compare(a.since, b.since) })
	return converted(keys[:max(0, min(limit, len(keys)))], (*held[T]).describe)
}

// holdOf returns the hold of key, or nil.
func (t *Tracker[T]) holdOf(key T) *held[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, rec := t.mu.records.find(key); rec != nil && rec.hold != nil && rec.hold.state != heldEnded {
		return rec.hold
	}
	return nil
}

// Release ends the hold of key, and reports whether there was one. It calls the queue's Done.
func (t *Tracker[T]) Release(key T) bool {
	k := t.holdOf(key)
	return k != nil && k.end()
}

// EndHolds ends all holds, and waits for their Dones. From now on no key is held. It is for the end of a
// program with workers of its own.
func (t *Tracker[T]) EndHolds() {
	t.mu.Lock()
	t.mu.records.holds.closed = true
	t.mu.Unlock()
	for k := range t.eachHold(heldForReasons, heldToPause) {
		k.end()
	}
	for next := t.nextHoldEnd(); next != nil; next = t.nextHoldEnd() {
		<-next
	}
	t.loop.Wait()
}
