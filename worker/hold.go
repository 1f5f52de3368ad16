package worker

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
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
//	end          by the last release, Release, EndHolds, the end of the lease, or endVainHolds
//	endAtLimits  the same for those that have come to their limits
//	done         then, once: it calls the queue's Done

// hold keeps the key of one call on hold.
type hold[T comparable] struct {
	tracker *Tracker[T]
	key     T

	// The tracker's mu guards what follows.

	reason     string
	limit      time.Duration
	slow       bool // not arranged by the handler: the key is slowed down, see slowDownLocked
	unreleased int  // how many releases have not been called
	phase      holdPhase
	slot       keytable.Slot // in the table of holds
	since      time.Duration // when it began, on the loop's clock

	// doneOrHold sets these before the hold begins.

	callDone     func(key T) // calls the queue's Done
	releaseLease func()      // nil without a lease
}

type holdPhase uint8

const (
	holdArranged holdPhase = iota // The call is still running, or its key was not put on hold.
	holdBegun
	holdEnded
)

// holds has the holds of a tracker that have begun, until their Done has returned. The tracker's mu guards
// it. One goroutine, the tracker's loop, waits for all limits, and runs only while there are any.
type holds[T comparable] struct {
	table  keytable.Table[T, *hold[T]]
	limits slotheap.Heap // when each hold comes to its limit, on the loop's clock; Never once it has ended
	total  int           // how many there are; table may lack one whose key is on hold again
	slow   int           // how many of these the handler has not arranged
	closed bool          // by EndHolds: no key is put on hold any more
	// unchecked reports that a hold has begun since endVainHolds has looked at all.
	unchecked bool
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
	t, h := c.tracker, c.neededHold()
	if h == nil {
		callDone(c.result.Key)
		return
	}
	h.callDone = callDone
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

// neededHold returns the hold that the call needs at its end, or nil. A key whose lease is lost needs none.
func (c *Tracked[T]) neededHold() *hold[T] {
	t, r := c.tracker, &c.result
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.Next == NextLost:
		return nil
	case c.hold != nil && c.hold.unreleased > 0:
		return c.hold
	case c.slowDown > 0:
		return &hold[T]{tracker: t, key: r.Key, limit: c.slowDown, slow: true, unreleased: 1,
			reason: fmt.Sprintf("it was interrupted %d times in a row, so it is slowed down", r.AtOnce)}
	}
	return nil
}

// begin puts the key on hold. It returns false if nothing is left to wait for, or nobody comes any more.
func (h *hold[T]) begin() bool {
	t := h.tracker
	vain, now := h.isVain(), t.loop.Now() // Not under mu: foreign code.
	t.mu.Lock()
	defer t.unlockAndTend()
	hs := &t.mu.holds
	if vain || hs.closed || h.unreleased == 0 {
		return false
	}
	s, e, _ := hs.table.FindOrInsert(keytable.HashOf(h.key), h.key)
	if e.Value != nil && e.Value.phase == holdBegun {
		return false // The lease of an earlier call is lost, and its hold is about to end.
	}
	e.Value = h
	h.slot, h.phase, h.since = s, holdBegun, now
	hs.limits.Set(slotheap.Entry{Rank: int64(h.untilLocked()), Slot: s})
	hs.unchecked = true
	hs.total++
	if h.slow {
		hs.slow++
	}
	return true
}

func (h *hold[T]) untilLocked() time.Duration { return dueloop.AddSaturated(h.since, h.limit) }

// isVain reports whether the queue is shut down and nothing is to be gained from the hold: it only slows the
// key down, no add from before the shutdown brings the key, or the queue is on a server, which hands out no
// more to this process.
func (h *hold[T]) isVain() bool {
	t := h.tracker
	switch {
	case !t.queue.ShuttingDown():
		return false
	case h.slow || t.answerer != nil:
		return true
	}
	inQueue, found := t.queue.SnapshotKey(h.key)
	return found && !inQueue.Again
}

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
	if h.phase != holdBegun {
		return false
	}
	t := h.tracker
	h.phase = holdEnded
	t.mu.holds.limits.Replace(slotheap.Entry{Rank: int64(dueloop.Never), Slot: h.slot})
	if !h.slow && now-h.since >= shortestHold {
		t.mu.records.resetAtOnce(h.key) // What comes after a hold that has lasted does not come at once.
	}
	return true
}

// done calls the queue's Done after endLocked.
func (h *hold[T]) done() {
	h.callQueueDone()
	t := h.tracker
	now := t.loop.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	hs := &t.mu.holds
	if h.slow {
		hs.slow--
	} else {
		t.mu.holdTimes.Observe(max(0, now-h.since))
	}
	if s, e := hs.table.Lookup(h.key); e != nil && e.Value == h {
		slotheap.Drop(&hs.limits, &hs.table, s)
	}
	hs.total--
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
			t.logger.Log(context.Background(), slog.LevelWarn, "A key was on hold to its limit",
				"key", h.key, "limit", h.limit, "reason", h.reason)
		}
	}
	return until, ok
}

// eachHold yields the holds whose Done has not returned. Nothing is locked meanwhile.
func (t *Tracker[T]) eachHold() iter.Seq[*hold[T]] {
	table := &t.mu.holds.table
	return keytable.InSteps(table, t.mu.Lock, t.mu.Unlock, func(all []*hold[T], s keytable.Slot) []*hold[T] {
		return append(all, table.At(s).Value)
	})
}

// endVainHolds ends the holds of keys that no add will bring, after the queue was shut down. A hold that it
// has left alone will not become vain, so it looks at each once.
func (t *Tracker[T]) endVainHolds() {
	t.mu.Lock()
	unchecked := t.mu.holds.unchecked
	t.mu.holds.unchecked = false
	t.mu.Unlock()
	if !unchecked {
		return
	}
	for h := range t.eachHold() {
		if h.isVain() {
			h.end()
		}
	}
}

// keysOnHold returns up to limit of the keys on hold, the one whose hold began first at the front.
func keysOnHold[T, K comparable](t *Tracker[T], limit int, show func(T) K) []OnHoldKey[K] {
	all := []OnHoldKey[K]{}
	for h := range t.eachHold() {
		t.mu.Lock()
		if h.phase == holdBegun && !h.slow {
			all = append(all, newOnHoldKeyLocked(h, show(h.key)))
		}
		t.mu.Unlock()
	}
	slices.SortStableFunc(all, func(a, b OnHoldKey[K]) int { return a.Since.Compare(b.Since) })
	return all[:max(0, min(limit, len(all)))]
}

func newOnHoldKeyLocked[T, K comparable](h *hold[T], shown K) OnHoldKey[K] {
	return OnHoldKey[K]{shown, h.reason, h.tracker.loop.Time(h.since), h.tracker.loop.Time(h.untilLocked())}
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

// EndHolds ends all holds, and waits for their Dones. After that no key is put on hold.
func (t *Tracker[T]) EndHolds() {
	t.mu.Lock()
	t.mu.holds.closed = true
	t.mu.Unlock()
	for h := range t.eachHold() {
		h.end()
	}
	for {
		t.mu.Lock()
		total, next := t.mu.holds.total, t.nextDoneLocked()
		t.mu.Unlock()
		if total == 0 {
			break
		}
		<-next
	}
	t.loop.Wait()
}

// nextDoneLocked returns a channel that is closed when the next Done of a hold has returned.
func (t *Tracker[T]) nextDoneLocked() <-chan struct{} {
	if t.mu.nextDone == nil {
		t.mu.nextDone = make(chan struct{})
	}
	return t.mu.nextDone
}
