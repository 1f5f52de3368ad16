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
	heldForParts heldState = iota // until the last part is released: then the hold ends or, if that came at once too often, becomes a pause
	heldToPause                   // until a time, see interrupted.go
	heldEnded
)

// Held reports, after End, whether the key must be held. See [Entry.AfterHold].
func (e *Entry[T]) Held() bool { return len(e.current.holds) > 0 }

// AfterHold must be called after End, instead of the queue's Done, with a function that calls Done. AfterHold calls it at once or, if
// the key is put on hold, when the hold ends: by a release, by its limit, by [Books.Release] or [Books.EndHolds], or because the key's
// lease ends or a [LeaseHolder] wants the key back. done is called once, on any goroutine.
func (e *Entry[T]) AfterHold(done func()) {
	parts := e.current.holds
	e.current.holds = nil
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
	released := k.partReleased // From here on the parts may end the hold, and not before: a lease must not begin after Done.
	for _, part := range parts {
		part.attach(&released)
	}
	k.partReleased() // Perhaps some were released before.
}

// partReleased is called when parts may have been released. The last one ends the hold. Until then the limits of the others count.
func (k *held[T]) partReleased() {
	h := k.holds
	now, shutDown := h.loop.Now(), h.books.queue.ShuttingDown() // Not under mu: foreign code.
	took := false
	h.mu.Lock()
	switch open := k.openLocked(); {
	case k.state != heldForParts: // It has ended, or is a pause already.
	case len(open) > 0:
		k.untilLocked(open)
	default:
		if pause := k.pauseAfterRelease(now); pause != nil && !shutDown {
			k.pauseLocked(pause)
		} else {
			took = h.takeLocked(k)
		}
	}
	h.unlock()
	if took {
		k.finish()
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
