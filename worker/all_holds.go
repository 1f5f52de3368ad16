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
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// holds is what a tracker knows of all its keys on hold. The tracker's mu guards it. One goroutine, the
// tracker's loop, waits for all limits, and runs only while there are any.
type holds struct {
	limits    slotheap.Heap // when the next reason of each hold comes to its limit, on the loop's clock
	notDone   int           // how many holds there are whose Done has not returned
	doneCount atomic.Uint64 // how many there were whose Done has returned; read without mu
	nextDone  chan struct{} // is closed when doneCount grows; nil if nothing waits for that
	noPauses  bool          // by shortenHolds: no key pauses any more
	noHolds   bool          // by EndHolds: no key is put on hold any more
}

// unlockAndTend unlocks mu after holds have changed, and sees to it that the loop runs while there are any,
// and wakes if a limit comes earlier now.
func (t *Tracker[T]) unlockAndTend() {
	wake := t.loop.TendLocked(t.firstLimitLocked())
	t.mu.Unlock()
	if wake {
		t.loop.Wake()
	}
}

// firstLimitLocked returns when the first reason comes to its limit.
func (t *Tracker[T]) firstLimitLocked() time.Duration {
	if t.mu.records.holds.limits.Len() == 0 {
		return dueloop.Never
	}
	return time.Duration(t.mu.records.holds.limits.First().Rank)
}

// mostDue bounds for how many holds endDue keeps the lock. If there are more, the loop calls it again.
const mostDue = 64

// endDue updates the holds that have a reason at its limit. If no reason of the handler is open then, the
// hold has come to its limit: that is counted and logged. It returns when the loop must call it again.
func (t *Tracker[T]) endDue() (until time.Duration, ok bool) {
	now := t.loop.Now()
	var ended []*hold[T]
	var toLimit []HeldKey[T]
	t.mu.Lock()
	rs := &t.mu.records
	for n := 0; n < mostDue && t.firstLimitLocked() <= now; n++ {
		h := rs.table.At(rs.holds.limits.First().Slot).Value.hold
		// Before the update, which drops them.
		handlerReasons := slices.DeleteFunc(slices.Clone(h.reasons), func(r *holdReason) bool { return r.pause })
		ends := h.updateLocked(now, false)
		if ends {
			ended = append(ended, h)
		}
		if len(handlerReasons) > 0 && (ends || h.onlyPausesLocked()) {
			toLimit = append(toLimit, newHeldKeyLocked(h, h.key, handlerReasons))
		}
	}
	t.mu.counted.HeldToLimit += uint64(len(toLimit))
	until, ok = t.loop.PlanLocked(now, t.firstLimitLocked())
	t.mu.Unlock()
	for _, h := range ended {
		h.finish()
	}
	for _, k := range toLimit { // Afterwards: the logger may be slow.
		t.catchPanic(func() {
			t.log(context.Background(), slog.LevelWarn, "A key was held to its limit",
				"key", k.Key, "held", k.Until.Sub(k.Since), "reason", k.Reason)
		})
	}
	return until, ok
}

// eachHold yields the holds that have not ended. Nothing is locked meanwhile.
func (t *Tracker[T]) eachHold() iter.Seq[*hold[T]] {
	return eachRecord(t, func(_ T, rec *record[T]) (*hold[T], bool) { return rec.hold, rec.isOnHold() })
}

// shortenHolds is called when the queue is shut down and empty. It ends all pauses, and the holds of keys
// that come no more. From now on no key pauses.
func (t *Tracker[T]) shortenHolds() {
	t.mu.Lock()
	already := t.mu.records.holds.noPauses
	t.mu.records.holds.noPauses = true
	t.mu.Unlock()
	if already { // Spares the walk over all records.
		return
	}
	for h := range t.eachHold() {
		h.update()
		h.endIfInVain()
	}
}

// nextHoldDone returns a channel that is closed after the next Done of a hold, or nil if none is to come.
func (t *Tracker[T]) nextHoldDone() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	hs := &t.mu.records.holds
	if hs.nextDone == nil && hs.notDone > 0 {
		hs.nextDone = make(chan struct{})
	}
	return hs.nextDone
}

// heldKeys returns up to limit of the keys that are held, the one whose hold began first at the front.
func heldKeys[T, K comparable](t *Tracker[T], limit int, show func(T) K) []HeldKey[K] {
	byStart := func(a, b *hold[T]) int { return cmp.Compare(a.since, b.since) }
	all := slices.SortedStableFunc(t.eachHold(), byStart)
	return converted(all[:max(0, min(limit, len(all)))], func(h *hold[T]) HeldKey[K] {
		t.mu.Lock()
		defer t.mu.Unlock()
		return newHeldKeyLocked(h, show(h.key), h.reasons)
	})
}

// Release ends the hold of key, and reports whether there was one. It calls the queue's Done.
func (t *Tracker[T]) Release(key T) bool {
	h := t.holdOf(key)
	return h != nil && h.endEarly()
}

// holdOf returns the hold of key, or nil. It panics if key cannot be hashed, such as a slice in an any.
func (t *Tracker[T]) holdOf(key T) *hold[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, rec := t.mu.records.find(key); rec != nil {
		return rec.hold
	}
	return nil
}

// EndHolds ends all holds, and waits for their Dones. From now on no key is put on hold.
func (t *Tracker[T]) EndHolds() {
	t.mu.Lock()
	t.mu.records.holds.noHolds = true
	t.mu.Unlock()
	for h := range t.eachHold() {
		h.endEarly()
	}
	for next := t.nextHoldDone(); next != nil; next = t.nextHoldDone() {
		<-next
	}
	t.loop.Wait()
}
