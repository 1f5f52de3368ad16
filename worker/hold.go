package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
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
//
// A hold has one or more reasons. A reason is open until it is released or comes to its limit; a pause of the
// pool itself (see pause.go) also ends by shortenHolds. The hold lasts while a reason is open:
//
//	doneOrHold       after the call: begins the hold, follows the lease, and looks for what has come before:
//	                 releases (update) and a shutdown (endIfInVain)
//	update           at each release, and by shortenHolds: drops the reasons that are not open. After the last
//	                 one it adds a pause, or ends the hold
//	endDue           the same at each limit, but without a pause
//	endEarly         ends the hold whatever is open: for Release, EndHolds, the lease, and endIfInVain
//	markEndedLocked  at the end, once
//	finish           then; it calls Done
//	noteDone         when Done has returned; the record forgets the hold

// hold keeps one key on hold, for one or more reasons.
type hold[T comparable] struct {
	tracker    *Tracker[T]
	key        T
	comesAgain bool          // after the hold, because the handler has returned Hold
	since      time.Duration // on the loop's clock
	callDone   func(key T)   // calls the queue's Done

	// The mu of the tracker guards what follows. Once the hold has ended nobody writes it.

	ended        bool
	slot         keytable.Slot
	reasons      []*holdReason // never empty: those that were open last, also after the end
	releaseLease func()        // nil without a lease
}

// onlyPausesLocked reports whether no reason of the handler is open, only a pause of the pool: see pause.go.
func (h *hold[T]) onlyPausesLocked() bool { return len(h.reasons) == 1 && h.reasons[0].pause }

// errHoldTwice is the failure of a call that returns the error of an earlier one.
var errHoldTwice = errors.New(
	"worker: an error of Hold was returned a second time: each call of the handler needs its own")

// Hold returns an error for a handler to return, bare or wrapped, that makes its key wait for something
// outside the program. The worker is free at once. The key does not start, whatever is added meanwhile, until
// release is called or limit has passed, whichever is first. Then it comes at once, with the priority that it
// has. This is no failure: nothing is counted or forgotten. But a key whose holds are released within a
// millisecond more than five times in a row is slowed down: see [Stats].Looping.
//
//	return worker.Hold("web is rolled out", 10*time.Minute, func(release func()) {
//		rollouts.Notify("web", release)
//	})
//
// Hold calls arrange at once, which must see to it that release is called later. A held key needs no
// goroutine and no timer of its own: for the end of a context, context.AfterFunc(ctx, release) does it.
// release may be called from any goroutine, any number of times, also before the handler has returned and
// after the pool has ended. It calls the queue's Done.
//
// The reason is short text for people, of which 200 bytes are kept. If the error is joined with a failure,
// with RequeueAfter or with Every, that counts as it would alone, and the key does not start before its hold
// has ended either. Of several Holds all must have ended. An error of Hold is for one call: to return it
// again is a failure. Hold panics if limit is not positive or arrange is nil.
//
// [Call.Hold] holds a key whatever the handler returns. The package comment says what ends a hold early.
func Hold(reason string, limit time.Duration, arrange func(release func())) error {
	if limit <= 0 {
		panic(fmt.Sprintf("worker: Hold for %v: a limit is positive", limit))
	}
	if arrange == nil {
		panic("worker: Hold without a function that arranges the release")
	}
	r := &holdReason{text: cut(reason, maxReason), limit: limit}
	arrange(r.release)
	return r
}

// holdReason is one reason to keep a key from starting, and the error that [Hold] returns.
type holdReason struct {
	text  string
	limit time.Duration
	pause bool // the pool itself has made it, see pause.go

	used      atomic.Bool            // a call has returned it; to return it again is a failure, errHoldTwice
	closed    atomic.Bool            // by release or, when the reason does not count any more, by detach
	onRelease atomic.Pointer[func()] // update of the hold, while the key is on hold
}

// Error says what the key waits for.
func (r *holdReason) Error() string {
	return fmt.Sprintf("on hold, for %v at most, until %s", r.limit, r.text)
}

// release is the function that arrange gets.
func (r *holdReason) release() {
	if r.closed.Swap(true) {
		return
	}
	// beginHold stores onRelease before update looks at closed, so no release is missed.
	if onRelease := r.onRelease.Swap(nil); onRelease != nil {
		(*onRelease)()
	}
}

// detach makes the release do nothing. The program may keep the release, and must not keep the hold by it.
func (r *holdReason) detach() {
	r.closed.Store(true)
	r.onRelease.Store(nil)
}

// HeldKey is a key that is on hold.
type HeldKey[T comparable] struct {
	Key T `json:"key"`
	// Reason is what the key waits for. If it waits for more than one thing, it says for how many others.
	Reason string `json:"reason"`
	// Since is when the hold began, and Until when it ends if nobody releases the key.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// newHeldKeyLocked returns what people see of h with these reasons.
func newHeldKeyLocked[T, K comparable](h *hold[T], shown K, reasons []*holdReason) HeldKey[K] {
	text, loop := reasons[0].text, h.tracker.loop
	if others := len(reasons) - 1; others > 0 {
		text = fmt.Sprintf("%s, and %d more", text, others)
	}
	last := slices.MaxFunc(reasons, compareLimits)
	return HeldKey[K]{shown, text, loop.Time(h.since), loop.Time(dueloop.AddSaturated(h.since, last.limit))}
}

func compareLimits(a, b *holdReason) int { return cmp.Compare(a.limit, b.limit) }

// doneOrHold calls callDone, at once or, if there are reasons to hold the key, when the hold ends. callDone
// gets the key, so a pool has the same function for all keys.
func (c *Tracked[T]) doneOrHold(callDone func(key T)) {
	if c.crashing {
		return
	}
	key, reasons := c.result.Key, c.reasons
	c.reasons = nil
	if len(reasons) == 0 {
		callDone(key)
		return
	}
	h := c.beginHold(reasons, callDone)
	if h == nil {
		callDone(key)
		return
	}
	h.followLease()
	h.update() // Releases before beginHold have only marked their reasons.
	h.endIfInVain()
}

// beginHold puts the key on hold. It returns nil after EndHolds, and if a broken queue gave out a held key.
func (c *Tracked[T]) beginHold(reasons []*holdReason, callDone func(key T)) *hold[T] {
	t := c.tracker
	h := &hold[T]{tracker: t, key: c.result.Key, comesAgain: c.result.Next == NextHold, since: t.loop.Now(),
		callDone: callDone, reasons: reasons}
	update := h.update // One method value for all reasons, which do not know the type of the key.
	t.mu.Lock()
	defer t.unlockAndTend()
	rs := &t.mu.records
	if rs.holds.noHolds {
		return nil
	}
	s, rec := rs.findOrInsert(h.key)
	if rec.isOnHold() {
		return nil
	}
	rec.hold, h.slot = h, s
	for _, reason := range h.reasons {
		reason.onRelease.Store(&update)
	}
	h.awaitLimitLocked()
	rs.holds.notDone++
	return h
}

// followLease makes h end when the key's lease does.
func (h *hold[T]) followLease() {
	t := h.tracker
	if t.leaser == nil {
		return
	}
	// Not the pool's context: its end would wake a goroutine for each hold.
	leased, release := t.leaser.LeaseHeld(context.Background(), h.key)
	stop := context.AfterFunc(leased, func() { h.endEarly() })
	releaseLease := func() {
		stop()
		release()
	}
	t.mu.Lock()
	ended := h.ended
	if !ended {
		h.releaseLease = releaseLease
	}
	t.mu.Unlock()
	if ended { // Nobody else will end the lease.
		releaseLease()
	}
}

// endIfInVain ends the hold if its key comes no more: the queue is shut down, and no add from before brings
// it. Over a queue with leases that is not known. A queue that is not of this project may have got an add
// that is not known: then the hold ends early, which is allowed.
func (h *hold[T]) endIfInVain() {
	t := h.tracker
	if t.leaser != nil || !t.queue.ShuttingDown() {
		return
	}
	if inQueue, found := t.queue.SnapshotKey(h.key); found && !inQueue.Again {
		h.endEarly()
	}
}

// update calls updateLocked, and finishes the hold if that has ended it.
func (h *hold[T]) update() {
	mayPause := !h.tracker.queue.ShuttingDown() // Not under mu: foreign code.
	h.change(func(now time.Duration) bool { return h.updateLocked(now, mayPause) })
}

// endEarly ends the hold, and reports whether it had not ended before.
func (h *hold[T]) endEarly() bool { return h.change(h.markEndedLocked) }

// change changes the hold by f, under mu, and finishes the hold afterwards if f reports that it has ended it.
// (endDue does the same for many holds.)
func (h *hold[T]) change(f func(now time.Duration) (ends bool)) (ends bool) {
	t := h.tracker
	now := t.loop.Now() // Not under mu: foreign code.
	t.mu.Lock()
	ends = f(now)
	t.unlockAndTend()
	if ends {
		h.finish()
	}
	return ends
}

// isOpenLocked reports whether r still keeps the key on hold.
func (h *hold[T]) isOpenLocked(r *holdReason, now time.Duration) bool {
	over := r.closed.Load() || r.pause && h.tracker.mu.records.holds.noPauses
	return !over && dueloop.AddSaturated(h.since, r.limit) > now
}

// updateLocked drops the reasons that are not open. If none is left, it adds a pause if one is due and
// mayPause is set: not at a limit, which is no release, and not after the shutdown, when a pause would only
// delay the end. Otherwise it ends the hold, and returns true.
func (h *hold[T]) updateLocked(now time.Duration, mayPause bool) (ends bool) {
	if h.ended {
		return false
	}
	var open []*holdReason
	for _, reason := range h.reasons {
		if h.isOpenLocked(reason, now) {
			open = append(open, reason)
		} else {
			reason.detach()
		}
	}
	if len(open) == 0 && mayPause {
		open = h.pauseAfterReleaseLocked(now)
	}
	if len(open) == 0 {
		return h.markEndedLocked(now) // h.reasons stays: it is never empty.
	}
	h.reasons = open
	h.awaitLimitLocked()
	return false
}

// awaitLimitLocked sees to it that endDue updates h when the next of its reasons comes to its limit.
func (h *hold[T]) awaitLimitLocked() {
	next := slices.MinFunc(h.reasons, compareLimits)
	limits := &h.tracker.mu.records.holds.limits
	if limits.Has(h.slot) {
		limits.Remove(h.slot)
	}
	limits.Push(slotheap.Entry{Rank: int64(dueloop.AddSaturated(h.since, next.limit)), Slot: h.slot})
}

// markEndedLocked marks the hold as ended. It returns false if it was. The record keeps h until Done is over.
func (h *hold[T]) markEndedLocked(now time.Duration) (ends bool) {
	if h.ended {
		return false
	}
	h.ended = true
	rs := &h.tracker.mu.records
	rs.holds.limits.Remove(h.slot)
	if h.comesAgain && !h.onlyPausesLocked() && h.hasLasted(now) {
		rs.clearInterruptions(&rs.table.At(h.slot).Value) // A hold that lasts ends the row, however it ends.
	}
	return true
}

// finish detaches the reasons of h after markEndedLocked, ends its lease, and calls Done.
func (h *hold[T]) finish() {
	t := h.tracker
	defer t.noteDone(h)
	for _, reason := range h.reasons {
		reason.detach()
	}
	t.catchPanic(func() {
		defer h.callDone(h.key)
		if h.releaseLease != nil {
			h.releaseLease()
		}
	})
}

// noteDone is called when the Done of a key whose hold has ended has returned.
func (t *Tracker[T]) noteDone(h *hold[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rs := &t.mu.records
	if s, rec := rs.find(h.key); rec != nil && rec.hold == h { // After Done the key may be on hold again.
		rec.hold = nil
		rs.deleteIfEmpty(s)
	}
	hs := &rs.holds
	hs.notDone--
	hs.doneCount.Add(1)
	if hs.nextDone != nil {
		close(hs.nextDone)
		hs.nextDone = nil
	}
}
