package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// This file follows one key on hold; all_holds.go is about all of them.
//
// A key on hold has been handled, but the queue's Done is called only when the hold ends. Until then any
// queue merges what is added, and does not hand the key out. A handler that returns Hold wants its key again,
// so the key is added before the hold begins.

// HeldKey is a key that is on hold.
type HeldKey[T comparable] struct {
	Key T `json:"key"`
	// Reason is what the key waits for. If it waits for more than one thing, it says for how many others.
	Reason string `json:"reason"`
	// Since is when the hold began, and Until when it ends if nobody releases the key.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// held is a key that is on hold, for one or more reasons.
type held[T comparable] struct {
	tracker    *Tracker[T]
	key        T
	wantsAgain bool          // the call has returned Hold
	since      time.Duration // on the loop's clock
	done       func(key T)   // calls the queue's Done

	// The mu of the tracker guards what follows. Once the hold has ended nobody writes it.

	state          heldState
	releasedAtOnce bool // within shortestHold, and counted as an interruption
	slot           keytable.Slot
	reasons        []*holdReason
	until          time.Duration // when the last reason comes to its limit
	endLease       func()        // nil without a lease
}

// heldState is how far a hold has come. Its limit, the end of its lease, Release and EndHolds end it from any
// state.
type heldState uint8

const (
	// heldForReasons: a hold of the handler is open. When all are released, the hold ends or, if that came at
	// once too often, becomes a pause.
	heldForReasons heldState = iota
	// heldToPause: only a pause is open, which passes by itself. See interrupted.go.
	heldToPause
	heldEnded
)

// describe returns what people see of k.
func (k *held[T]) describe() HeldKey[T] {
	t := k.tracker
	now := t.loop.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	return HeldKey[T]{Key: k.key, Reason: k.reasonLocked(now), Since: t.loop.Time(k.since),
		Until: t.loop.Time(k.until)}
}

// reasonLocked returns what k waits for at that time.
func (k *held[T]) reasonLocked(now time.Duration) string {
	switch reasons := k.openReasonsLocked(now); len(reasons) {
	case 0: // The hold is about to end.
		return k.reasons[0].reason
	case 1:
		return reasons[0].reason
	default:
		return fmt.Sprintf("%s, and %d more", reasons[0].reason, len(reasons)-1)
	}
}

// doneOrHold is Done with a function that gets the key: a pool has the same one for all keys.
func (c *Tracked[T]) doneOrHold(done func(key T)) {
	if c.crashing {
		return
	}
	key, reasons := c.result.Key, c.reasons
	c.reasons = nil
	if len(reasons) == 0 {
		done(key)
		return
	}
	t := c.tracker
	k := &held[T]{tracker: t, key: key, wantsAgain: c.result.Next == NextHold, since: t.loop.Now(), done: done,
		reasons: reasons}
	if !t.beginHold(k) {
		k.endReasons()
		done(key)
		return
	}
	k.endWithLease()
	onRelease := k.endIfReleased
	for _, reason := range reasons {
		reason.onRelease.Store(&onRelease)
	}
	k.endIfReleased() // Releases before that have only marked their reasons.
	if t.comesNoMore(key) {
		k.end()
	}
}

// beginHold puts k on hold, or returns false: after EndHolds, or if the key is on hold already, which only a
// broken queue allows.
func (t *Tracker[T]) beginHold(k *held[T]) bool {
	t.mu.Lock()
	defer t.unlockHolds()
	rs := &t.mu.records
	if rs.holds.closed {
		return false
	}
	s, rec := rs.findOrInsert(k.key)
	if rec.hold != nil && rec.hold.state != heldEnded {
		return false
	}
	rec.hold, k.slot = k, s
	rs.holds.limits.Push(slotheap.Entry{Slot: s}) // setReasonsLocked replaces it.
	k.setReasonsLocked(k.reasons)
	rs.holds.unfinished++
	return true
}

// endWithLease makes the hold of k end when the key's lease does.
func (k *held[T]) endWithLease() {
	t := k.tracker
	if t.leaser == nil {
		return
	}
	// Not the pool's context: its end would wake a goroutine for each hold.
	leased, release := t.leaser.LeaseHeld(context.Background(), k.key)
	stop := context.AfterFunc(leased, func() { k.end() })
	endLease := func() {
		stop()
		release()
	}
	t.mu.Lock()
	already := k.state == heldEnded
	if !already {
		k.endLease = endLease
	}
	t.mu.Unlock()
	if already { // The hold has ended without this lease.
		endLease()
	}
}

// comesNoMore reports whether key, whose handler has returned, cannot come again: the queue is shut down, and
// no add from before brings it. Over a queue with leases that is not known, so the answer is false. Of a
// queue that is not of this project only the pool's own adds are known.
func (t *Tracker[T]) comesNoMore(key T) bool {
	if t.leaser != nil || !t.queue.ShuttingDown() {
		return false
	}
	k, found := t.queue.SnapshotKey(key)
	return found && !k.Again
}

// endIfReleased ends the hold, or makes it a pause, if its last reason was released. Until then the limits of
// the open reasons count.
func (k *held[T]) endIfReleased() {
	t := k.tracker
	now, shutDown := t.loop.Now(), t.queue.ShuttingDown() // Not under mu: foreign code.
	ends := false
	t.mu.Lock()
	if k.state != heldEnded {
		open := k.openReasonsLocked(now)
		if len(open) == 0 && !shutDown && !t.mu.records.holds.noPauses {
			open = k.pauseAfterReleaseLocked(now)
		}
		if len(open) > 0 {
			k.setReasonsLocked(open)
		} else {
			ends = k.endLocked()
		}
	}
	t.unlockHolds()
	if ends {
		k.finish()
	}
}

// setReasonsLocked makes the hold end when the last of its open reasons comes to its limit. If only a pause
// is open, the key is heldToPause from now on.
func (k *held[T]) setReasonsLocked(open []*holdReason) {
	if len(open) == 1 && open[0].pause {
		k.state, k.reasons = heldToPause, open
	}
	last := slices.MaxFunc(open, func(a, b *holdReason) int { return cmp.Compare(a.limit, b.limit) })
	k.until = dueloop.AddSaturated(k.since, last.limit)
	rs := &k.tracker.mu.records
	rs.holds.limits.Replace(slotheap.Entry{Rank: int64(k.until), Slot: k.slot})
	rs.syncUnanswered(k.slot, &rs.table.At(k.slot).Value)
}

// openReasonsLocked returns the reasons that hold the key at that time: not those that have come to their
// limits. A pause holds nothing after endPauses.
func (k *held[T]) openReasonsLocked(now time.Duration) []*holdReason {
	noPauses := k.tracker.mu.records.holds.noPauses
	return slices.DeleteFunc(slices.Clone(k.reasons), func(h *holdReason) bool {
		return h.ended.Load() || h.pause && noPauses || dueloop.AddSaturated(k.since, h.limit) <= now
	})
}

// endLocked ends the hold of k. If it returns true, the caller must unlock and call finish; false means that
// the hold has ended before. Until Done has returned, the record has k.
func (k *held[T]) endLocked() bool {
	if k.state == heldEnded {
		return false
	}
	k.state = heldEnded
	rs := &k.tracker.mu.records
	rs.holds.limits.Remove(k.slot)
	rs.syncUnanswered(k.slot, &rs.table.At(k.slot).Value)
	return true
}

// end ends the hold of k, and reports whether it has not ended before.
func (k *held[T]) end() bool {
	t := k.tracker
	t.mu.Lock()
	ends := k.endLocked()
	t.unlockHolds()
	if ends {
		k.finish()
	}
	return ends
}

// finish ends the reasons and the lease of k after endLocked, and makes the key Done.
func (k *held[T]) finish() {
	t := k.tracker
	defer t.noteDone(k)
	k.endReasons()
	t.catchPanic(func() {
		defer k.done(k.key)
		if k.endLease != nil {
			k.endLease()
		}
		if k.wantsAgain && !k.releasedAtOnce && t.loop.Now()-k.since >= shortestHold {
			t.forgetInterruptions(k.key) // A hold that lasts ends the row, however it ends.
		}
	})
}

// endReasons makes the releases of the reasons do nothing from now on.
func (k *held[T]) endReasons() {
	for _, reason := range k.reasons {
		reason.ended.Store(true)
		reason.onRelease.Store(nil) // The program may keep the release: it must not keep k.
	}
}

// noteDone is called when the Done of a key whose hold has ended has returned.
func (t *Tracker[T]) noteDone(k *held[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rs := &t.mu.records
	if s, rec := rs.find(k.key); rec != nil && rec.hold == k { // Otherwise the key is on hold again.
		rec.hold = nil
		rs.endIfAtRest(s)
	}
	hs := &rs.holds
	hs.unfinished--
	hs.finished.Add(1)
	if hs.nextEnd != nil {
		close(hs.nextEnd)
		hs.nextEnd = nil
	}
}
