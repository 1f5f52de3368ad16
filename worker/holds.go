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
		unfinished int           // holds whose Done has not returned: those in keys, and those in finish
		finished   uint64        // holds whose Done has returned
		changed    chan struct{} // is closed when finished grows; nil if nobody waits
		noPauses   bool          // by endPauses: no key pauses any more
		closed     bool          // by EndHolds: no key is put in any more
		toLimit    uint64        // holds that have come to their limit
	}
}

// put puts k in, or returns false: after EndHolds, or if the key is on hold already, which only a broken queue allows.
func (hs *holds[T]) put(k *held[T]) bool {
	hash := keytable.HashOf(k.key)
	hs.mu.Lock()
	defer hs.unlock()
	if hs.mu.closed {
		return false
	}
	s, entry, inserted := hs.mu.keys.FindOrInsert(hash, k.key)
	if !inserted {
		return false
	}
	entry.Value, k.slot = k, s
	hs.mu.limits.Push(slotheap.Entry{Slot: s}) // waitLocked replaces it.
	k.waitLocked(k.parts)
	hs.mu.unfinished++
	return true
}

// takeLocked ends the hold of k. If it returns true, the caller must unlock and call k.finish; false means that somebody else has ended it.
func (hs *holds[T]) takeLocked(k *held[T]) bool {
	if k.state == heldEnded {
		return false
	}
	k.state = heldEnded
	slotheap.Drop(&hs.mu.limits, &hs.mu.keys, k.slot)
	return true
}

// noteDone is called when the Done of a key that was taken out has returned.
func (hs *holds[T]) noteDone() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.mu.unfinished--
	hs.mu.finished++
	if hs.mu.changed != nil {
		close(hs.mu.changed)
		hs.mu.changed = nil
	}
}

// unlock unlocks hs, whose keys have changed. The loop wakes if a limit comes earlier now, and ends without keys.
func (hs *holds[T]) unlock() {
	wake := hs.loop.TendLocked(hs.firstLimitLocked())
	hs.mu.Unlock()
	if wake {
		hs.loop.Wake()
	}
}

// firstLimitLocked returns when the first hold comes to its limit.
func (hs *holds[T]) firstLimitLocked() time.Duration {
	if hs.mu.limits.Len() == 0 {
		return dueloop.Never
	}
	return time.Duration(hs.mu.limits.First().Rank)
}

// mostDue bounds how many keys are taken out in one go under the lock.
const mostDue = 64

// endDue ends the holds that have come to their limits. The loop calls it, and again at the time that it returns.
func (hs *holds[T]) endDue() (until time.Duration, ok bool) {
	now := hs.loop.Now()
	var due []*held[T]
	var reports []func()
	hs.mu.Lock()
	for len(due) < mostDue && hs.firstLimitLocked() <= now {
		k := hs.mu.keys.At(hs.mu.limits.First().Slot).Value
		due = append(due, k)
		if k.state != heldToPause {
			reason := k.reasonLocked() // Before finish ends the parts.
			reports = append(reports, func() {
				hs.books.logger.Warn("A key was held to its limit", "key", k.key, "held", k.until-k.since, "reason", reason)
			})
		}
		hs.takeLocked(k)
	}
	hs.mu.toLimit += uint64(len(reports))
	until, ok = hs.loop.PlanLocked(now, hs.firstLimitLocked())
	hs.mu.Unlock()
	for _, k := range due {
		k.finish()
	}
	for _, report := range reports { // Afterwards: the logger may be slow.
		hs.books.catchPanic(report)
	}
	return until, ok
}

// each yields the keys on hold that are in state or a later one. It holds no lock meanwhile.
func (hs *holds[T]) each(state heldState) iter.Seq[*held[T]] {
	return keytable.InSteps(&hs.mu.keys, hs.mu.Lock, hs.mu.Unlock, func(keys []*held[T], s keytable.Slot) []*held[T] {
		if k := hs.mu.keys.At(s).Value; k.state >= state {
			keys = append(keys, k)
		}
		return keys
	})
}

// endPauses ends all pauses. From now on no key pauses.
func (hs *holds[T]) endPauses() {
	hs.mu.Lock()
	ended := hs.mu.noPauses
	hs.mu.noPauses = true
	hs.mu.Unlock()
	if ended { // Spares a walk over keys, which may be many.
		return
	}
	for k := range hs.each(heldToPause) {
		k.end()
	}
}

// watch returns how many holds have ended, and a channel that is closed when the next one ends, or nil if no key is on hold.
func (hs *holds[T]) watch() (finished uint64, changed <-chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.mu.unfinished == 0 {
		return hs.mu.finished, nil
	}
	if hs.mu.changed == nil {
		hs.mu.changed = make(chan struct{})
	}
	return hs.mu.finished, hs.mu.changed
}

// counts returns how many keys are held, and how many holds have come to their limit.
func (hs *holds[T]) counts() (held int, toLimit uint64) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.mu.unfinished, hs.mu.toLimit
}

// all returns up to limit of the keys that are held, the one whose hold began first at the front.
func (hs *holds[T]) all(limit int) []HeldKey[T] {
	keys := slices.SortedStableFunc(hs.each(heldForParts), func(a, b *held[T]) int { return cmp.Compare(a.since, b.since) })
	return converted(keys[:max(0, min(limit, len(keys)))], (*held[T]).describe)
}

// find returns the hold of key, or nil.
func (hs *holds[T]) find(key T) *held[T] {
	hash := keytable.HashOf(key)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if _, entry := hs.mu.keys.Find(hash, key); entry != nil {
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
	hs := b.holds
	hs.mu.Lock()
	hs.mu.closed = true
	hs.mu.Unlock()
	for k := range hs.each(heldForParts) {
		k.end()
	}
	for _, changed := hs.watch(); changed != nil; _, changed = hs.watch() {
		<-changed
	}
	hs.loop.Wait()
}
