package workqueue

import (
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// dueHeap has keys that wait for their time, each at most once: the one that is due first is on top. Keys that
// are due at the same time come out in the order in which they were put in.
//
// Times are kept as nanoseconds since epoch, which is when the first of the keys was put in. Times more than 292
// years away from it saturate at what an int64 can express. No key comes early because of that. But after a clock
// has jumped so far, keys may come late, and a key that is due still later never comes.
//
// Invariant, which checkInvariants in the tests asserts: the slots of keys are those in order.
type dueHeap[T comparable] struct {
	// keys has for each key when it was put in.
	keys keytable.Table[T, packedDuration]
	// order has for each key when it is due. Ties are numbered in the order in which keys were put in.
	order slotheap.Heap
	seq   uint32
	epoch time.Time
}

// never is the due time of a key that is due too late to be expressed.
const never time.Duration = math.MaxInt64

func (h *dueHeap[T]) len() int { return h.order.Len() }

// put makes key, whose hash is hash, due after the delay from now on, or leaves it at its time if that
// is earlier. It returns whether the earliest due time has changed.
func (h *dueHeap[T]) put(hash keytable.Hash, key T, now time.Time, delay time.Duration) bool {
	if h.len() == 0 {
		h.epoch = now
	}
	since := now.Sub(h.epoch) // Saturates.
	s, k, inserted := h.keys.FindOrInsert(hash, key)
	e := slotheap.Entry{Rank: int64(addSaturated(since, delay)), Tie: h.seq, Slot: s}
	h.seq++
	switch {
	case inserted:
		k.Value = packed(since)
		h.order.Push(e)
	case e.Rank < h.order.At(s).Rank:
		h.order.Replace(e)
	default:
		return false
	}
	return h.order.First().Slot == s
}

// popDue takes out up to maxBatch keys that are due at now, and appends them to keys, the earliest first.
func (h *dueHeap[T]) popDue(now time.Time, keys []keytable.Hashed[T]) []keytable.Hashed[T] {
	elapsed := now.Sub(h.epoch)
	var slots [maxBatch]keytable.Slot
	n := 0
	for n < len(slots) && h.len() > 0 {
		if first := h.first(); first > elapsed || first == never {
			break
		}
		slots[n] = h.order.Pop().Slot
		n++
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

// first returns the earliest due time. There must be one.
func (h *dueHeap[T]) first() time.Duration { return time.Duration(h.order.First().Rank) }

// untilNext returns how long after now the next key is due. That is not positive if it is due already. There must
// be a key.
func (h *dueHeap[T]) untilNext(now time.Time) time.Duration {
	if h.first() == never {
		return never
	}
	return h.epoch.Add(h.first()).Sub(now)
}

// clear takes out all keys and returns how many there were. It takes constant time.
func (h *dueHeap[T]) clear() int {
	n := h.len()
	*h = dueHeap[T]{}
	return n
}

// addSaturated returns a + b, or the nearest Duration to it.
func addSaturated(a, b time.Duration) time.Duration {
	return min(max(a, math.MinInt64-min(b, 0)), math.MaxInt64-max(b, 0)) + b
}
