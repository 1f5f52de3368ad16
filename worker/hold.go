package worker

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// A key on hold has been handled, but the queue's Done is called only when the hold ends. Until then any
// queue merges what is added, and does not hand the key out.
//
//	arrangeHold  during the call, by Call.Hold
//	begin        after the call, in place of Done, unless all has been released already
//	end          by the last release, Release, the end of the lease, or closeHolds
//	endAtLimits  the same for those that have come to their limits
//	done         then, once: it calls the queue's Done, or begins the handler's own hold

// hold keeps the key of one call on hold.
type hold[T comparable] struct {
	tracker *Tracker[T]
	key     T

	// These do not change once the hold has begun.

	reason       string
	limit        time.Duration
	slow         bool          // not arranged by the handler: the key is slowed down, see slowDownLocked
	since        time.Duration // when it began, on the loop's clock
	callDone     func(key T)   // calls the queue's Done, or begins the handler's own hold
	releaseLease func()        // nil without a lease

	unreleased int // how many releases have not been called. The tracker's mu guards it.
}

// holds has the holds of a tracker. The tracker's mu guards it. One goroutine, the tracker's loop, waits for
// all limits, and runs only while there are any.
type holds[T comparable] struct {
	table  keytable.Table[T, *hold[T]] // those that have begun and not ended
	limits slotheap.Heap               // when each of them comes to its limit, on the loop's clock
	slow   int                         // how many of them the handler has not arranged
	ending map[*hold[T]]struct{}       // those that have ended, and their Done has not returned
	closed bool                        // by closeHolds: no key is put on hold any more
}

func (hs *holds[T]) any() bool { return hs.table.Len()+len(hs.ending) > 0 }

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
		c.hold = &hold[T]{tracker: t, key: c.result.Key, reason: cut(reason, maxReason)}
	}
	h := c.hold
	h.unreleased++
	h.limit = max(h.limit, limit)
	return sync.OnceFunc(func() {
		t.mu.Lock()
		h.unreleased--
		last := h.unreleased == 0
		t.mu.Unlock()
		if last {
			h.end()
		}
	})
}

// doneOrHold calls callDone, at once or, if the key is put on hold, when the hold ends. callDone gets the
// key, so a pool has the same function for all keys.
func (c *Tracked[T]) doneOrHold(callDone func(key T)) {
	t := c.tracker
	h := c.nextHold()
	if h == nil {
		callDone(c.result.Key)
		return
	}
	if h.callDone = callDone; h.slow {
		h.callDone = func(T) { c.doneOrHold(callDone) } // The handler's own hold comes next.
	}
	t.queue.PutOnHold(h.key)       // Before begin: then Done may come at any time.
	leased := context.Background() // Not the pool's: its end would wake a goroutine for each hold.
	if t.leaser != nil {
		lease, release := t.leaser.LeaseOnHold(leased, h.key)
		ctx, cancel := context.WithCancel(lease) // lease may be one for many keys, and outlive them.
		leased, h.releaseLease = ctx, func() { cancel(); release() }
	}
	if !h.begin() {
		h.callQueueDone()
		return
	}
	context.AfterFunc(leased, func() { h.end() }) // done also ends leased, when this does nothing.
}

// nextHold returns the hold that must come before the call's Done, or nil. A key whose lease is lost needs
// none.
func (c *Tracked[T]) nextHold() *hold[T] {
	t, r := c.tracker, &c.result
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.Next == NextLost:
		return nil
	case c.slowDown > 0:
		h := &hold[T]{tracker: t, key: r.Key, limit: c.slowDown, slow: true, unreleased: 1,
			reason: fmt.Sprintf("it was interrupted %d times in a row, so it is slowed down", r.AtOnce)}
		c.slowDown = 0
		return h
	case c.hold != nil && c.hold.unreleased > 0:
		return c.hold
	}
	return nil
}

// begin puts the key on hold. It returns false if nothing is left to wait for.
func (h *hold[T]) begin() bool {
	t := h.tracker
	now := t.loop.Now() // Not under mu: foreign code.
	t.mu.Lock()
	defer t.unlockAndTend()
	hs := &t.mu.holds
	if hs.closed || h.unreleased == 0 {
		return false
	}
	s, e, inserted := hs.table.FindOrInsert(keytable.HashOf(h.key), h.key)
	if !inserted {
		return false // The lease of an earlier call is lost, and its hold is about to end.
	}
	e.Value, h.since = h, now
	hs.limits.Push(slotheap.Entry{Rank: int64(h.until()), Slot: s})
	if h.slow {
		hs.slow++
	}
	return true
}

func (h *hold[T]) until() time.Duration { return dueloop.AddSaturated(h.since, h.limit) }

// end ends the hold, and reports whether it had begun and not ended.
func (h *hold[T]) end() bool {
	t := h.tracker
	now := t.loop.Now() // Not under mu: foreign code.
	t.mu.Lock()
	ends := h.endLocked(now)
	t.unlockAndTend()
	if ends {
		h.done()
	}
	return ends
}

func (h *hold[T]) endLocked(now time.Duration) bool {
	t := h.tracker
	hs := &t.mu.holds
	s, e := hs.table.Lookup(h.key)
	if e == nil || e.Value != h {
		return false
	}
	slotheap.Drop(&hs.limits, &hs.table, s)
	hs.ending[h] = struct{}{}
	if h.slow {
		hs.slow--
		return true
	}
	t.mu.holdTimes.Observe(max(0, now-h.since))
	if now-h.since >= shortestHold {
		t.mu.records.resetAtOnce(h.key) // What comes after a hold that has lasted does not come at once.
	}
	return true
}

// done calls the queue's Done, or begins the handler's own hold, after endLocked.
func (h *hold[T]) done() {
	h.callQueueDone()
	t := h.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.holds.ending, h)
	t.mu.dones++
	if t.mu.nextDone != nil {
		close(t.mu.nextDone)
		t.mu.nextDone = nil
	}
}

func (h *hold[T]) callQueueDone() {
	if h.releaseLease != nil {
		h.releaseLease()
	}
	h.callDone(h.key)
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

// firstLimitLocked returns when the first hold comes to its limit.
func (t *Tracker[T]) firstLimitLocked() time.Duration {
	if t.mu.holds.limits.Len() == 0 {
		return dueloop.Never
	}
	return time.Duration(t.mu.holds.limits.First().Rank)
}

// mostDue bounds for how many holds endAtLimits keeps the lock. If there are more, the loop calls it again.
const mostDue = 64

// endAtLimits ends, counts and logs the holds that have come to their limits. It returns when the loop must
// call it again.
func (t *Tracker[T]) endAtLimits() (until time.Duration, ok bool) {
	now := t.loop.Now()
	var due []*hold[T]
	t.mu.Lock()
	hs := &t.mu.holds
	for len(due) < mostDue && t.firstLimitLocked() <= now {
		h := hs.table.At(hs.limits.First().Slot).Value
		h.endLocked(now)
		due = append(due, h)
		if !h.slow {
			t.mu.counted.HoldsToLimit++
		}
	}
	until, ok = t.loop.PlanLocked(now, t.firstLimitLocked())
	t.mu.Unlock()
	for _, h := range due {
		h.done()
	}
	for _, h := range due { // Afterwards: the logger may be slow.
		if !h.slow {
			t.logger.Warn("A key was on hold to its limit", "key", h.key, "limit", h.limit, "reason", h.reason)
		}
	}
	return until, ok
}

// eachHold yields the holds that have begun and not ended. Nothing is locked meanwhile.
func (t *Tracker[T]) eachHold() iter.Seq[*hold[T]] {
	table := &t.mu.holds.table
	return keytable.InSteps(table, t.mu.Lock, t.mu.Unlock, func(all []*hold[T], s keytable.Slot) []*hold[T] {
		return append(all, table.At(s).Value)
	})
}

// keysOnHold returns up to limit of the keys on hold, the one whose hold began first at the front.
func keysOnHold[T, K comparable](t *Tracker[T], limit int, show func(T) K) []OnHoldKey[K] {
	all := []OnHoldKey[K]{}
	for h := range t.eachHold() {
		if !h.slow {
			all = append(all, newOnHoldKey(h, show(h.key)))
		}
	}
	slices.SortStableFunc(all, func(a, b OnHoldKey[K]) int { return a.Since.Compare(b.Since) })
	return all[:max(0, min(limit, len(all)))]
}

func newOnHoldKey[T, K comparable](h *hold[T], shown K) OnHoldKey[K] {
	return OnHoldKey[K]{shown, h.reason, h.tracker.loop.Time(h.since), h.tracker.loop.Time(h.until())}
}

// Release ends the hold of key, and reports whether key was on hold. It calls the queue's Done.
func (t *Tracker[T]) Release(key T) bool {
	t.mu.Lock()
	h := t.holdOfLocked(key)
	t.mu.Unlock()
	released := h != nil && h.end()
	if released && h.slow {
		t.Release(key) // The handler's own hold has begun.
	}
	return released
}

// holdOfLocked returns the hold of key, or nil.
func (t *Tracker[T]) holdOfLocked(key T) *hold[T] {
	if _, e := t.mu.holds.table.Lookup(key); e != nil {
		return e.Value
	}
	return nil
}

// isOnHoldLocked reports whether key is on hold because its handler has arranged that.
func (t *Tracker[T]) isOnHoldLocked(key T) bool {
	h := t.holdOfLocked(key)
	return h != nil && !h.slow
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
	for {
		t.mu.Lock()
		isAny, next := t.mu.holds.any(), t.nextDoneLocked()
		t.mu.Unlock()
		if !isAny {
			break
		}
		<-next
	}
	t.loop.Wait()
}

// keysBeforeDone returns the keys whose holds have begun, and whose Dones have not returned.
func (t *Tracker[T]) keysBeforeDone() (keys []T) {
	for h := range t.eachHold() {
		keys = append(keys, h.key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for h := range t.mu.holds.ending {
		keys = append(keys, h.key)
	}
	return keys
}

// nextDoneLocked returns a channel that is closed when the next Done of a hold has returned.
func (t *Tracker[T]) nextDoneLocked() <-chan struct{} {
	if t.mu.nextDone == nil {
		t.mu.nextDone = make(chan struct{})
	}
	return t.mu.nextDone
}
