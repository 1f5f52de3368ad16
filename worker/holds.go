package worker

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// A key on hold has been handled, but the queue's Done is called only when the hold ends. Until then any queue merges what is added, and
// does not hand the key out. A handler that returns Hold wants its key again, so the key is added before the hold begins.

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

// holds has the keys that are on hold. One goroutine waits for all limits, and runs only while there are any.
type holds[T comparable] struct {
	books *Books[T]
	loop  *dueloop.Loop

	// mu is held for moments only, and never while foreign code runs.
	mu struct {
		sync.Mutex
		keys    keytable.Table[T, *held[T]]
		limits  slotheap.Heap // when the hold of each key ends at the latest, on the loop's clock
		pauses  int           // how many of keys are held by a pause only, see interrupted.go
		ending  int           // holds that were taken out of keys, and whose Done has not returned
		ended   uint64        // holds whose Done has returned
		changed chan struct{} // is closed when ended grows; nil if nobody waits
		closed  bool          // by EndHolds: no key is put in any more
		toLimit uint64        // holds that have come to their limit
	}
}

// held is a key that is on hold, for one or more reasons: its parts.
type held[T comparable] struct {
	holds      *holds[T]
	key        T
	slot       keytable.Slot
	wantsAgain bool          // the call has returned Hold
	unreleased atomic.Int32  // how many parts, and one more during AfterHold
	since      time.Duration // on the loop's clock
	done       func()        // calls the queue's Done

	// What follows is guarded by holds.mu while the key is in holds.mu.keys.

	in       bool          // in holds.mu.keys
	pause    bool          // all parts are pauses, see interrupted.go
	parts    []*hold       // what the key waits for
	until    time.Duration // when the last part comes to its limit
	endLease func()        // nil without a lease
}

// Held reports, after End, whether the key must be held. See [Entry.AfterHold].
func (e *Entry[T]) Held() bool { return len(e.holds) > 0 }

// AfterHold must be called after End, instead of the queue's Done, with a function that calls Done. AfterHold calls it at once or, if
// the key is put on hold, when the hold ends: by a release, by its limit, by [Books.Release] or [Books.EndHolds], or because the key's
// lease ends or a [LeaseHolder] wants the key back. done is called once, on any goroutine.
func (e *Entry[T]) AfterHold(done func()) {
	parts := e.holds
	e.holds = nil
	if len(parts) == 0 {
		done()
		return
	}
	h := e.books.holds
	k := &held[T]{holds: h, key: e.result.Key, wantsAgain: e.result.Next == NextHold, since: h.loop.Now(), done: done, parts: parts, pause: true}
	// The parts may be released at any moment. One extra count keeps the key on hold until put and endWithLease have returned.
	k.unreleased.Store(int32(len(parts)) + 1)
	for _, part := range parts {
		k.pause = k.pause && part.pause
		k.until = max(k.until, k.limitOf(part))
		if !part.attach(k.partReleased) { // It was released before.
			k.unreleased.Add(-1)
		}
	}
	if !h.put(k) {
		k.endParts()
		done()
		return
	}
	k.endWithLease()
	k.partReleased() // The extra one.
}

func (k *held[T]) endParts() {
	for _, part := range k.parts {
		part.end()
	}
}

func (k *held[T]) limitOf(part *hold) time.Duration { return dueloop.AddSaturated(k.since, part.limit) }

// partReleased is called when a part is released. The last one ends the hold. Until then the limits of the others count.
func (k *held[T]) partReleased() {
	if k.unreleased.Add(-1) == 0 {
		if !k.pauseIfLooping() {
			k.end()
		}
		return
	}
	k.holds.mu.Lock()
	if open := k.openLocked(); k.in && len(open) > 0 {
		k.untilLocked(slices.MaxFunc(open, func(a, b *hold) int { return cmp.Compare(a.limit, b.limit) }))
	}
	k.holds.unlock()
}

// openLocked returns the parts that are not released.
func (k *held[T]) openLocked() []*hold {
	return slices.DeleteFunc(slices.Clone(k.parts), (*hold).hasEnded)
}

// untilLocked makes k, which is in holds, end at the limit of that part.
func (k *held[T]) untilLocked(part *hold) {
	k.until = k.limitOf(part)
	k.holds.mu.limits.Replace(slotheap.Entry{Rank: int64(k.until), Slot: k.slot})
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
	onHold := k.in
	if onHold {
		k.endLease = endLease
	}
	k.holds.mu.Unlock()
	if !onHold { // The hold has ended meanwhile, without this lease.
		endLease()
	}
}

// put adds k, or returns false: after EndHolds, or if the key is on hold already, which only a broken queue allows.
func (h *holds[T]) put(k *held[T]) bool {
	hash := keytable.HashOf(k.key)
	h.mu.Lock()
	defer h.unlock()
	if h.mu.closed {
		return false
	}
	s, entry, inserted := h.mu.keys.FindOrInsert(hash, k.key)
	if !inserted {
		return false
	}
	entry.Value, k.slot, k.in = k, s, true
	h.mu.limits.Push(slotheap.Entry{Rank: int64(k.until), Slot: s})
	if k.pause {
		h.mu.pauses++
	}
	return true
}

// unlock unlocks h, whose keys have changed. The loop wakes if a limit comes earlier now, and ends without keys.
func (h *holds[T]) unlock() {
	wake := h.loop.TendLocked(h.firstLimitLocked())
	h.mu.Unlock()
	if wake {
		h.loop.Wake()
	}
}

// firstLimitLocked returns when the first hold comes to its limit.
func (h *holds[T]) firstLimitLocked() time.Duration {
	if h.mu.limits.Len() == 0 {
		return dueloop.Never
	}
	return time.Duration(h.mu.limits.First().Rank)
}

// takeLocked takes k out of keys, or returns false if it is not in. If it returns true, finish must be called next, without mu.
func (h *holds[T]) takeLocked(k *held[T]) bool {
	if !k.in {
		return false
	}
	k.in = false
	slotheap.Drop(&h.mu.limits, &h.mu.keys, k.slot)
	if k.pause {
		h.mu.pauses--
	}
	h.mu.ending++
	return true
}

// finish ends the parts and the lease of k, which was taken out, and makes the key Done.
func (k *held[T]) finish() {
	h := k.holds
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mu.ending--
		h.mu.ended++
		if h.mu.changed != nil {
			close(h.mu.changed)
			h.mu.changed = nil
		}
	}()
	k.endParts()
	h.books.catchPanic(func() {
		defer k.done()
		if k.endLease != nil {
			k.endLease()
		}
	})
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

// mostDue bounds how many keys are taken out in one go under the lock.
const mostDue = 64

// endDue ends the holds that have come to their limits. The loop calls it, and again at the time that it returns.
func (h *holds[T]) endDue() (until time.Duration, ok bool) {
	now := h.loop.Now()
	var due []*held[T]
	h.mu.Lock()
	for len(due) < mostDue && h.firstLimitLocked() <= now {
		k := h.mu.keys.At(h.mu.limits.First().Slot).Value
		h.takeLocked(k)
		if !k.pause {
			h.mu.toLimit++
		}
		due = append(due, k)
	}
	until, ok = h.loop.PlanLocked(now, h.firstLimitLocked())
	h.mu.Unlock()
	for _, k := range due {
		if !k.pause {
			h.books.catchPanic(func() {
				h.books.logger.Warn("A key was held to its limit", "key", k.key, "held", k.until-k.since, "reason", k.reasonLocked())
			})
		}
		k.finish()
	}
	return until, ok
}

// each yields the keys that are on hold, or only those that pause. It holds no lock while it yields them.
func (h *holds[T]) each(onlyPauses bool) iter.Seq[*held[T]] {
	return keytable.InSteps(&h.mu.keys, h.mu.Lock, h.mu.Unlock, func(keys []*held[T], s keytable.Slot) []*held[T] {
		if k := h.mu.keys.At(s).Value; k.pause || !onlyPauses {
			keys = append(keys, k)
		}
		return keys
	})
}

// endAll ends the holds of all keys, or only the pauses.
func (h *holds[T]) endAll(onlyPauses bool) {
	h.mu.Lock()
	none := onlyPauses && h.mu.pauses == 0
	h.mu.Unlock()
	if none { // Spares a walk over keys, which may be many.
		return
	}
	for k := range h.each(onlyPauses) {
		k.end()
	}
}

// watch returns how many holds have ended, and a channel that is closed when the next one ends, or nil if no key is on hold.
func (h *holds[T]) watch() (ended uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.keys.Len()+h.mu.ending == 0 {
		return h.mu.ended, nil
	}
	if h.mu.changed == nil {
		h.mu.changed = make(chan struct{})
	}
	return h.mu.ended, h.mu.changed
}

// counts returns how many keys are held, and how many holds have come to their limit.
func (h *holds[T]) counts() (held int, toLimit uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.keys.Len() + h.mu.ending, h.mu.toLimit
}

// reasonLocked also works, without mu, for a key that was taken out.
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

// all returns up to limit of the keys that are held, the one whose hold began first at the front.
func (h *holds[T]) all(limit int) []HeldKey[T] {
	keys := slices.SortedStableFunc(h.each(false), func(a, b *held[T]) int { return cmp.Compare(a.since, b.since) })
	return converted(keys[:max(0, min(limit, len(keys)))], (*held[T]).describe)
}

// find returns the hold of key, or nil.
func (h *holds[T]) find(key T) *held[T] {
	hash := keytable.HashOf(key)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, entry := h.mu.keys.Find(hash, key); entry != nil {
		return entry.Value
	}
	return nil
}

// Release ends the hold of key, and reports whether there was one. It calls the queue's Done.
func (b *Books[T]) Release(key T) bool {
	k := b.holds.find(key)
	return k != nil && k.end()
}

// EndHolds ends all holds, and waits for their Dones. From now on no key is held. It is for the end of a program with workers of its own.
func (b *Books[T]) EndHolds() {
	h := b.holds
	h.mu.Lock()
	h.mu.closed = true
	h.mu.Unlock()
	h.endAll(false)
	for _, changed := h.watch(); changed != nil; _, changed = h.watch() {
		<-changed
	}
	h.loop.Wait()
}
