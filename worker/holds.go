package worker

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// holds has the keys that are on hold. One goroutine waits for all limits, and runs only while there are any.
type holds[T comparable] struct {
	books *Books[T]
	loop  *dueloop.Loop

	// mu is held for moments only, and never while foreign code runs. It is locked before the books' mu if both are needed.
	mu struct {
		sync.Mutex
		keys       keytable.Table[T, *held[T]]
		limits     slotheap.Heap // when the hold of each key ends at the latest, on the loop's clock
		pauses     int           // how many of keys are heldToPause
		unfinished int           // holds whose Done has not returned: those of keys, and others that end
		finished   uint64        // holds whose Done has returned
		changed    chan struct{} // is closed when finished grows; nil if nobody waits
		closed     bool          // by EndHolds: no key is put in any more
		toLimit    uint64        // holds that have come to their limit
	}
}

// put puts k in, or returns false: after EndHolds, or if the key is on hold already, which only a broken queue allows.
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
	entry.Value, k.slot = k, s
	h.mu.limits.Push(slotheap.Entry{Slot: s}) // untilLocked replaces it.
	k.untilLocked(k.parts)
	h.mu.unfinished++
	if len(k.parts) == 1 && k.parts[0].pause { // A call makes one pause at most.
		k.state = heldToPause
		h.mu.pauses++
	}
	return true
}

// takeLocked takes k out, or returns false if its hold has ended before. If it returns true, k.finish must be called next, without mu.
func (h *holds[T]) takeLocked(k *held[T]) bool {
	if k.state == heldEnded {
		return false
	}
	if k.state == heldToPause {
		h.mu.pauses--
	}
	k.state = heldEnded
	slotheap.Drop(&h.mu.limits, &h.mu.keys, k.slot)
	return true
}

// noteDone is called when the Done of a key that was taken out has returned.
func (h *holds[T]) noteDone() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.unfinished--
	h.mu.finished++
	if h.mu.changed != nil {
		close(h.mu.changed)
		h.mu.changed = nil
	}
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

// mostDue bounds how many keys are taken out in one go under the lock.
const mostDue = 64

// endDue ends the holds that have come to their limits. The loop calls it, and again at the time that it returns.
func (h *holds[T]) endDue() (until time.Duration, ok bool) {
	now := h.loop.Now()
	var due, reported []*held[T]
	h.mu.Lock()
	for len(due) < mostDue && h.firstLimitLocked() <= now {
		k := h.mu.keys.At(h.mu.limits.First().Slot).Value
		due = append(due, k)
		if k.state != heldToPause {
			reported = append(reported, k)
		}
		h.takeLocked(k)
	}
	h.mu.toLimit += uint64(len(reported))
	until, ok = h.loop.PlanLocked(now, h.firstLimitLocked())
	h.mu.Unlock()
	for _, k := range reported {
		h.books.catchPanic(func() {
			h.books.logger.Warn("A key was held to its limit", "key", k.key, "held", k.until-k.since, "reason", k.reasonLocked())
		})
	}
	for _, k := range due {
		k.finish()
	}
	return until, ok
}

// each yields the keys that are on hold, or only those that pause. It holds no lock while it yields them.
func (h *holds[T]) each(onlyPauses bool) iter.Seq[*held[T]] {
	return keytable.InSteps(&h.mu.keys, h.mu.Lock, h.mu.Unlock, func(keys []*held[T], s keytable.Slot) []*held[T] {
		if k := h.mu.keys.At(s).Value; k.state == heldToPause || !onlyPauses {
			keys = append(keys, k)
		}
		return keys
	})
}

// endPauses ends the holds of the keys that pause.
func (h *holds[T]) endPauses() {
	h.mu.Lock()
	none := h.mu.pauses == 0
	h.mu.Unlock()
	if none { // Spares a walk over keys, which may be many.
		return
	}
	for k := range h.each(true) {
		k.end()
	}
}

// watch returns how many holds have ended, and a channel that is closed when the next one ends, or nil if no key is on hold.
func (h *holds[T]) watch() (finished uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.unfinished == 0 {
		return h.mu.finished, nil
	}
	if h.mu.changed == nil {
		h.mu.changed = make(chan struct{})
	}
	return h.mu.finished, h.mu.changed
}

// counts returns how many keys are held, and how many holds have come to their limit.
func (h *holds[T]) counts() (held int, toLimit uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.unfinished, h.mu.toLimit
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
	for k := range h.each(false) {
		k.end()
	}
	for _, changed := h.watch(); changed != nil; _, changed = h.watch() {
		<-changed
	}
	h.loop.Wait()
}
