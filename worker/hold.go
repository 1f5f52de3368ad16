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

// A key on hold has been handled, but the queue's Done is called only when the hold ends. Until then any queue merges what is added, and
// does not hand the key out. A handler that returns Hold wants its key again, so the key is added before the hold begins.

// hold is one reason to keep a key from starting, and the error that [Hold] returns. It ends by its release, its limit or the pool's end.
type hold struct {
	reason string
	limit  time.Duration
	pause  bool // the pool itself has made it, see interrupted.go

	returned atomic.Bool // a call of the handler has returned it
	// released is nil until AfterHold attaches what release must call, and &nothing once the hold has been released or ended.
	released atomic.Pointer[func()]
}

// nothing marks a hold that has ended. Only its address matters.
var nothing = func() {}

// maxReason bounds the memory of a held key.
const maxReason = 200

// errHoldTwice is the failure of a call that returns the error of an earlier one.
var errHoldTwice = errors.New("worker: an error of Hold was returned a second time: each call of the handler needs its own")

// Hold returns an error for a handler to return, bare or wrapped, that makes its key wait for something outside the program. The worker
// is free at once. The key does not start, whatever is added meanwhile, until release is called or limit has passed, whichever is first.
// Then it comes at once, with the priority that it has. This is no failure: nothing is counted or forgotten. But a key whose holds are
// released within a millisecond, more than five times in a row, pauses as if it were interrupted: see [Stats].Looping.
//
//	return worker.Hold("web is rolled out", 10*time.Minute, func(release func()) {
//		rollouts.Notify("web", release)
//	})
//
// Hold calls arrange at once, which must see to it that release is called later. A held key needs no goroutine and no timer of
// its own: for the end of a context, context.AfterFunc(ctx, release) does it. release may be called from any goroutine, any
// number of times, also before the handler has returned and after the pool has ended. It calls the queue's Done.
//
// The reason is short text for people, of which 200 bytes are kept. If the error is joined with a failure, with RequeueAfter or with
// Every, that counts as it would alone, and the key does not start before its hold has ended either. An error of Hold is for one call:
// to return it again is a failure. Hold panics if limit is not positive or arrange is nil.
//
// See [Call.Hold] for a hold after any answer, also nil, and the package comment for what ends a hold early.
func Hold(reason string, limit time.Duration, arrange func(release func())) error {
	if limit <= 0 {
		panic(fmt.Sprintf("worker: Hold for %v: a limit is positive", limit))
	}
	if arrange == nil {
		panic("worker: Hold without a function that arranges the release")
	}
	h := &hold{reason: cut(reason, maxReason), limit: limit}
	arrange(h.release)
	return h
}

// Error says what the key waits for.
func (h *hold) Error() string {
	return fmt.Sprintf("on hold, for %v at most, until %s", h.limit, h.reason)
}

// release is the function that arrange gets.
func (h *hold) release() {
	if released := h.released.Swap(&nothing); released != nil {
		(*released)()
	}
}

// attach makes release call *released, unless h has ended before.
func (h *hold) attach(released *func()) { h.released.CompareAndSwap(nil, released) }

// end makes release do nothing from now on.
func (h *hold) end() { h.released.Store(&nothing) }

// hasEnded reports whether h was released, or end was called.
func (h *hold) hasEnded() bool { return h.released.Load() == &nothing }

// HeldKey is a key that is on hold.
type HeldKey[T comparable] struct {
	Key T `json:"key"`
	// Reason is what the key waits for. If it waits for more than one thing, it says for how many others.
	Reason string `json:"reason"`
	// Since is when the hold began, and Until when it ends if nobody releases the key.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// LeaseHolder is a [workqueue.Leaser] that may want a key back while it is on hold.
type LeaseHolder[T comparable] interface {
	// LeaseHeld is Lease for a key that is on hold. The context that it returns ends also when the queue wants the key back.
	LeaseHeld(ctx context.Context, key T) (context.Context, context.CancelFunc)
}

// held is a key that is on hold, for one or more reasons: its parts.
type held[T comparable] struct {
	holds      *holds[T]
	key        T
	wantsAgain bool          // the call has returned Hold
	since      time.Duration // on the loop's clock
	done       func()        // calls the queue's Done

	// The mu of holds guards what follows. Once the hold has ended nobody writes it.

	state    heldState
	slot     keytable.Slot
	parts    []*hold
	until    time.Duration // when the last part comes to its limit
	endLease func()        // nil without a lease
}

// heldState is what a held key waits for. In every state its limit, the end of its lease, Release and EndHolds end the hold.
type heldState uint8

const (
	// heldForParts: the key waits until all parts are released. Then the hold ends or, if that came at once too often, becomes a pause.
	heldForParts heldState = iota
	// heldToPause: the key waits only for a time to pass. See interrupted.go.
	heldToPause
	heldEnded
)

// Held reports, after End, whether the key must be held. See [Entry.AfterHold].
func (e *Entry[T]) Held() bool { return len(e.current.parts) > 0 }

// AfterHold must be called after End, instead of the queue's Done, with a function that calls Done. AfterHold calls it at once or, if
// the key is put on hold, when the hold ends: by a release, by its limit, by [Books.Release] or [Books.EndHolds], or because the key's
// lease ends or a [LeaseHolder] wants the key back. done is called once, on any goroutine.
func (e *Entry[T]) AfterHold(done func()) {
	parts := e.current.parts
	e.current.parts = nil
	if len(parts) == 0 {
		done()
		return
	}
	h := e.books.holds
	k := &held[T]{holds: h, key: e.result.Key, wantsAgain: e.result.Next == NextHold, since: h.loop.Now(), done: done, parts: parts}
	if !h.put(k) {
		k.endParts()
		done()
		return
	}
	k.endWithLease()
	released := k.partReleased // Attached only now, so that a release does not end the hold, and call Done, before its lease has begun.
	for _, part := range parts {
		part.attach(&released)
	}
	k.partReleased() // For parts that were released before.
}

// partReleased is called when parts may have been released. The last one ends the hold. Until then the limits of the others count.
func (k *held[T]) partReleased() {
	h := k.holds
	now, shutDown := h.loop.Now(), h.books.queue.ShuttingDown() // Not under mu: foreign code.
	took := false
	h.mu.Lock()
	switch open := k.openLocked(); {
	case k.state != heldForParts: // It has ended, or is a pause already.
	case len(open) == 1 && open[0].pause: // pauseIfLooping's pause outlasts the handler's holds.
		k.pauseLocked(open[0])
	case len(open) > 0:
		k.untilLocked(open)
	default:
		if pause := k.pauseAfterRelease(now); pause != nil && !shutDown {
			k.pauseLocked(pause)
		} else {
			took = h.takeLocked(k)
		}
	}
	pauses := k.state == heldToPause
	h.unlock()
	switch {
	case took:
		k.finish()
	case pauses && h.books.queue.ShuttingDown(): // Asked again: endPauses may have come before this pause.
		k.end()
	}
}

// pauseLocked makes pause the only reason of the hold.
func (k *held[T]) pauseLocked(pause *hold) {
	k.state, k.parts = heldToPause, []*hold{pause}
	k.holds.mu.pauses++
	k.untilLocked(k.parts)
}

// untilLocked makes the hold end when the last one of parts comes to its limit.
func (k *held[T]) untilLocked(parts []*hold) {
	last := slices.MaxFunc(parts, func(a, b *hold) int { return cmp.Compare(a.limit, b.limit) })
	k.until = dueloop.AddSaturated(k.since, last.limit)
	k.holds.mu.limits.Replace(slotheap.Entry{Rank: int64(k.until), Slot: k.slot})
}

// openLocked returns the parts that are not released.
func (k *held[T]) openLocked() []*hold {
	return slices.DeleteFunc(slices.Clone(k.parts), (*hold).hasEnded)
}

// endWithLease makes the hold of k end when the key's lease does.
func (k *held[T]) endWithLease() {
	b := k.holds.books
	if b.leaser == nil {
		return
	}
	lease := b.leaser.Lease
	if q, ok := b.queue.(LeaseHolder[T]); ok {
		lease = q.LeaseHeld
	}
	leased, release := lease(context.Background(), k.key) // Not the pool's context: its end would wake a goroutine for each hold.
	stop := context.AfterFunc(leased, func() { k.end() })
	endLease := func() {
		stop()
		release()
	}
	k.holds.mu.Lock()
	ended := k.state == heldEnded
	if !ended {
		k.endLease = endLease
	}
	k.holds.mu.Unlock()
	if ended { // Without this lease.
		endLease()
	}
}

// end ends the hold of k, and reports whether it has not ended before.
func (k *held[T]) end() bool {
	h := k.holds
	h.mu.Lock()
	took := h.takeLocked(k)
	h.unlock()
	if took {
		k.finish()
	}
	return took
}

// finish ends the parts and the lease of k, which takeLocked has taken out, and makes the key Done.
func (k *held[T]) finish() {
	defer k.holds.noteDone()
	k.endParts()
	k.holds.books.catchPanic(func() {
		defer k.done()
		if k.endLease != nil {
			k.endLease()
		}
	})
}

func (k *held[T]) endParts() {
	for _, part := range k.parts {
		part.end()
	}
}

// reasonLocked also works, without mu, for a hold that has ended.
func (k *held[T]) reasonLocked() string {
	parts := k.openLocked()
	switch len(parts) {
	case 0: // The hold is about to end.
		return k.parts[0].reason
	case 1:
		return parts[0].reason
	}
	return fmt.Sprintf("%s, and %d more", parts[0].reason, len(parts)-1)
}

func (k *held[T]) describe() HeldKey[T] {
	h := k.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	return HeldKey[T]{Key: k.key, Reason: k.reasonLocked(), Since: h.loop.Time(k.since), Until: h.loop.Time(k.until)}
}
