package workqueue

import (
	"iter"
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// dueHeap keeps keys until they are due, each at most once: the earliest due time is on top. Keys that
// are due at the same time come out in the order in which they were put in.
//
// When many keys come due at once, they leave the heap together, because to sort them is quicker than so many pops.
//
// Invariant, which checkInvariants in the tests asserts: the slots of keys are those in order and those in storm.
type dueHeap[T comparable] struct {
	// keys has for each key the time after epoch at which it was put in.
	keys keytable.Table[T, packedDuration]
	// order has for each key the time after epoch at which it is due. Ties number the keys in the order in
	// which they were put in, modulo 2^32: keys of equal times that are further apart than 2^31 may come out
	// in the wrong order.
	order slotheap.Heap[uint32]
	seq   uint32
	// storm has those keys that were found to be due together. They come before those in order, also if the clock
	// is set back meanwhile.
	storm slotheap.Run[uint32]

	// epoch is set anew when the first key is put in.
	epoch time.Time
}

// never is the due time of what is due too late to be told.
const never time.Duration = math.MaxInt64

// minStorm is how many keys must be waiting for some of them to be a storm: for fewer, a heap is as quick.
const minStorm = 1 << 16

func (h *dueHeap[T]) len() int { return h.storm.Len() + h.order.Len() }

// put makes key, whose hash is hash, due after the delay from now on, or leaves it at its time if that
// is earlier. It returns whether the earliest due time has changed.
func (h *dueHeap[T]) put(hash keytable.Hash, key T, now time.Time, delay time.Duration) bool {
	if h.len() == 0 {
		h.epoch = now
	}
	due := int64(h.dueTime(now, delay))
	s, k, inserted := h.keys.FindOrInsert(hash, key)
	e := slotheap.Entry[uint32]{Rank: due, Tie: h.seq, Slot: s}
	h.seq++
	switch {
	case inserted:
		k.Value = packed(now.Sub(h.epoch))
		h.order.Push(e)
	case h.order.Has(s) && due < h.order.At(s).Rank: // What is in storm is as good as gone.
		h.order.Replace(e)
	default:
		return false
	}
	return h.storm.Len() == 0 && h.order.First().Slot == s
}

// inOrder returns the entries from the earliest on. The heap must not change meanwhile.
func (h *dueHeap[T]) inOrder() iter.Seq[slotheap.Entry[uint32]] {
	return func(yield func(slotheap.Entry[uint32]) bool) {
		for e := range h.storm.InOrder() {
			if !yield(e) {
				return
			}
		}
		h.order.InOrder()(yield)
	}
}

// popDue takes out up to maxBatch keys that are due at now, and appends them to keys, the earliest first. When it
// finds a storm, it takes O(n): ten or twenty milliseconds for a million keys.
func (h *dueHeap[T]) popDue(now time.Time, keys []keytable.Hashed[T]) []keytable.Hashed[T] {
	elapsed := now.Sub(h.epoch)
	if h.storm.Len() == 0 && h.order.Len() >= minStorm && elapsed < never {
		h.storm = h.order.TakeMost(int64(elapsed))
	}
	var slots [maxBatch]keytable.Slot
	n := 0
	for ; n < len(slots) && h.storm.Len() > 0; n++ {
		slots[n] = h.storm.Pop().Slot
	}
	for ; n < len(slots) && h.order.Len() > 0; n++ {
		if first := h.first(); first > elapsed || first == never {
			break
		}
		slots[n] = h.order.Pop().Slot
	}
	h.keys.Preload(slots[:n])
	for _, s := range slots[:n] {
		k := h.keys.At(s)
		keys = append(keys, keytable.Hashed[T]{Hash: k.Hash(), Key: k.Key})
		h.keys.Delete(s)
		if !h.keys.HasMemory(s) {
			h.order.Release(s)
		}
	}
	return keys
}

// first returns the earliest due time of the keys in order. There must be one.
func (h *dueHeap[T]) first() time.Duration { return time.Duration(h.order.First().Rank) }

// untilNext returns how long after now the next key is due, which is not positive if it is due
// already. There must be one, and no storm.
func (h *dueHeap[T]) untilNext(now time.Time) time.Duration {
	if h.first() == never {
		return never
	}
	return h.epoch.Add(h.first()).Sub(now)
}

// clear takes out all keys and returns how many there were.
func (h *dueHeap[T]) clear() int {
	n := h.len()
	*h = dueHeap[T]{}
	return n
}

// dueTime returns the time after the epoch that is delay, which is positive, after now.
//
// A Duration tells times up to 292 years before and after the epoch. What a clock that jumps further
// than that while keys wait (a fake one that was set to the zero time, say) may do to a key is make it
// late: nothing is due early, and nothing is forgotten.
func (h *dueHeap[T]) dueTime(now time.Time, delay time.Duration) time.Duration {
	elapsed := now.Sub(h.epoch) // saturates
	if elapsed == math.MaxInt64 {
		h.restart(now)
		elapsed = 0
	}
	// Above the least Duration, which is what every earlier reading looks like.
	return max(addSaturated(elapsed, delay), math.MinInt64+1)
}

// restart makes now the epoch, at a time when everything is due that ever will be.
func (h *dueHeap[T]) restart(now time.Time) {
	for h.storm.Len() > 0 {
		h.order.Push(h.storm.Pop())
	}
	const before = -math.MaxInt64
	h.order.Rerank(func(e slotheap.Entry[uint32]) int64 {
		if time.Duration(e.Rank) == never {
			return e.Rank
		}
		return max(e.Rank, 0) + before
	})
	for e := range h.order.All() {
		since := &h.keys.At(e.Slot).Value
		*since = packed(addSaturated(since.duration(), before))
	}
	h.epoch = now
}

// addSaturated returns a + b, or the nearest Duration to it.
func addSaturated(a, b time.Duration) time.Duration {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}
