package worker

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// A key on hold has been handled, but the queue's Done is called only when the hold ends. Until then any
// queue merges what is added, and does not hand the key out.
//
//	arrangeHold  during the call, by Call.Hold
//	begin        after the call, in place of Done, unless all has been released already
//	end          by the last release, the limit, Release, the end of the lease, or closeHolds; calls Done

// hold keeps the key of one call on hold. Once it has begun, only its phase and unreleased change.
type hold[T comparable] struct {
	tracker *Tracker[T]
	key     T

	reason      string
	byHandler   bool // Otherwise it slows the key down, see slowDownLocked.
	since       time.Time
	callDone    func(key T) // calls the queue's Done
	stopWaiting func()      // stops the timers, and ends the lease

	// The tracker's mu guards these. limit and slowDown do not change after begin.

	limit      time.Duration
	slowDown   time.Duration // of a hold of the handler, whose key is also slowed down
	phase      holdPhase
	unreleased int // how many releases have not been called
}

// holdPhase is how far a hold has come. It only moves forward.
type holdPhase uint8

const (
	holdArranged holdPhase = iota // The call is running, and the handler may arrange more.
	holdBegins                    // What ends the hold is being prepared, and may already do so.
	holdOn
	holdEnded // Done is called, or was.
)

// holds has the holds of a tracker. The tracker's mu guards it, but for pendingDones.
type holds[T comparable] struct {
	table        keytable.Table[T, *hold[T]] // those that have begun, until their Done has returned
	closed       bool                        // by closeHolds: no key is put on hold any more
	pendingDones sync.WaitGroup              // has the holds whose Done has not returned
}

// OnHoldKey is a key that is on hold.
type OnHoldKey[T comparable] struct {
	Key    T      `json:"key"`
	Reason string `json:"reason"`
	// Since is when the hold began, and Until when it comes to its limit.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

const maxReason = 200 // bytes

// arrangeHold is [Call.Hold] while the call is running.
func (c *Tracked[T]) arrangeHold(reason string, limit time.Duration) (release func()) {
	t := c.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.running {
		return func() {}
	}
	if c.hold == nil {
		c.hold = &hold[T]{tracker: t, key: c.result.Key, reason: cut(reason, maxReason), byHandler: true}
	}
	h := c.hold
	h.unreleased++
	h.limit = max(h.limit, limit)
	return sync.OnceFunc(h.releaseOne)
}

// releaseOne ends the hold if nothing else is left to wait for.
func (h *hold[T]) releaseOne() {
	h.tracker.mu.Lock()
	h.unreleased--
	isLast := h.unreleased == 0 && h.phase != holdArranged
	h.tracker.mu.Unlock()
	if isLast {
		h.end()
	}
}

// doneOrHold calls callDone, at once or, if the key is put on hold, when the hold ends. callDone gets the
// key, so a pool has the same function for all keys.
func (c *Tracked[T]) doneOrHold(callDone func(key T)) {
	h := c.holdBeforeDone()
	if h == nil || !h.begin(callDone) {
		callDone(c.result.Key)
	}
}

// holdBeforeDone returns the hold that must come before the call's Done, or nil. A key whose lease is lost
// needs no hold. Of the handler's hold and the slow-down, the one with the longer limit counts.
// It lasts at least as long as the slow-down.
func (c *Tracked[T]) holdBeforeDone() *hold[T] {
	t := c.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.result.Next == NextLost {
		return nil
	}
	h := c.hold
	if h == nil || h.unreleased == 0 || h.limit <= c.slowDown {
		if c.slowDown == 0 {
			return nil
		}
		h = &hold[T]{tracker: t, key: c.result.Key, limit: c.slowDown, unreleased: 1,
			reason: fmt.Sprintf("it was interrupted %d times in a row, so it is slowed down", c.result.AtOnce)}
	} else if c.slowDown > 0 {
		h.slowDown = c.slowDown
		h.unreleased++ // The timer of begin calls this release.
	}
	h.phase = holdBegins
	return h
}

// begin puts the key on hold. It returns false if nothing is left to wait for.
func (h *hold[T]) begin(callDone func(key T)) bool {
	t := h.tracker
	clock := t.options.Clock
	h.callDone, h.since = callDone, clock.Now()
	end := func() { h.end() }
	stopLimit, stopSlowDown, endLease := afterFunc(clock, h.limit, end), func() {}, func() {}
	if h.slowDown > 0 {
		stopSlowDown = afterFunc(clock, h.slowDown, h.releaseOne)
	}
	if t.leaser != nil {
		// Not made from the pool's context: its end would wake a goroutine for each hold.
		lease, release := t.leaser.LeaseOnHold(context.Background(), h.key)
		stop := context.AfterFunc(lease, end) // lease may be one for many keys, and outlive the hold.
		endLease = func() { stop(); release() }
	}
	h.stopWaiting = func() { stopLimit(); stopSlowDown(); endLease() }
	t.queue.PutOnHold(h.key) // Before beginLocked: then Done may come at any time.
	t.mu.Lock()
	begins := h.beginLocked()
	t.mu.Unlock()
	if !begins {
		h.stopWaiting()
	}
	return begins
}

func (h *hold[T]) beginLocked() bool {
	hs := &h.tracker.mu.holds
	if hs.closed || h.unreleased == 0 || h.phase == holdEnded {
		return false
	}
	// The queue hands the key out again only after Done, so no other hold of it is on. The table may still have
	// one whose Done has been called and has not returned.
	_, e, _ := hs.table.FindOrInsert(keytable.HashOf(h.key), h.key)
	e.Value, h.phase = h, holdOn
	hs.pendingDones.Add(1)
	return true
}

// end ends the hold and calls Done. It reports whether the hold was on.
func (h *hold[T]) end() bool {
	t := h.tracker
	now := t.options.Clock.Now() // Not under mu: foreign code.
	t.mu.Lock()
	wasOn := h.phase == holdOn
	if wasOn {
		h.countEndLocked(now)
	}
	h.phase = holdEnded
	t.mu.Unlock()
	if !wasOn {
		return false
	}
	defer t.mu.holds.pendingDones.Done()
	h.stopWaiting()
	h.callDone(h.key)
	t.mu.Lock()
	t.holdDoneLocked(h)
	t.mu.Unlock()
	if h.reachedLimit(now) { // Afterwards: the logger may be slow.
		t.logger.Warn("A key was on hold to its limit", "key", h.key, "limit", h.limit, "reason", h.reason)
	}
	return true
}

func (h *hold[T]) countEndLocked(now time.Time) {
	mu, lasted := &h.tracker.mu, now.Sub(h.since)
	mu.holdTimes.Observe(max(0, lasted))
	if h.byHandler && lasted >= h.slowDown+shortestHold {
		mu.records.resetAtOnce(h.key) // What comes after a hold that has lasted does not come at once.
	}
	if h.reachedLimit(now) {
		mu.counted.HoldsToLimit++
	}
}

func (h *hold[T]) reachedLimit(now time.Time) bool { return h.byHandler && now.Sub(h.since) >= h.limit }

// holdDoneLocked is called when the Done of h has returned.
func (t *Tracker[T]) holdDoneLocked(h *hold[T]) {
	hs := &t.mu.holds
	if s, e := hs.table.Lookup(h.key); e != nil && e.Value == h {
		hs.table.Delete(s)
	}
	if t.pool != nil {
		t.pool.afterHoldLocked()
	}
}

// eachHold yields the holds whose Done has not returned. Nothing is locked meanwhile.
func (t *Tracker[T]) eachHold() iter.Seq[*hold[T]] {
	table := &t.mu.holds.table
	return keytable.InSteps(table, t.mu.Lock, t.mu.Unlock, func(all []*hold[T], s keytable.Slot) []*hold[T] {
		return append(all, table.At(s).Value)
	})
}

// keysOnHold returns the keys on hold, the one whose hold began first at the front.
func (t *Tracker[T]) keysOnHold(atMost int) []OnHoldKey[T] {
	all := []OnHoldKey[T]{}
	for h := range t.eachHold() {
		all = append(all, h.snapshot())
	}
	slices.SortStableFunc(all, func(a, b OnHoldKey[T]) int { return a.Since.Compare(b.Since) })
	return first(atMost, all)
}

func (h *hold[T]) snapshot() OnHoldKey[T] {
	return OnHoldKey[T]{h.key, h.reason, h.since, h.since.Add(h.limit)}
}

// Release ends the hold of key, and reports whether key was on hold. It calls the queue's Done.
func (t *Tracker[T]) Release(key T) bool {
	t.mu.Lock()
	h := t.holdOfLocked(key)
	t.mu.Unlock()
	return h != nil && h.end()
}

// holdOfLocked returns the hold of key, or nil.
func (t *Tracker[T]) holdOfLocked(key T) *hold[T] {
	if _, e := t.mu.holds.table.Lookup(key); e != nil && e.Value.phase == holdOn {
		return e.Value
	}
	return nil
}

// closeHolds ends all holds. After that no key is put on hold. It may be called any number of times.
func (t *Tracker[T]) closeHolds() {
	t.mu.Lock()
	wasClosed := t.mu.holds.closed
	t.mu.holds.closed = true
	t.mu.Unlock()
	if wasClosed {
		return
	}
	for h := range t.eachHold() {
		h.end()
	}
}

// EndHolds ends all holds, and waits for their Dones. After that no key is put on hold.
func (t *Tracker[T]) EndHolds() {
	t.closeHolds()
	t.mu.holds.pendingDones.Wait()
}
