package workqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// dueHeap has keys that wait for their time, each at most once, the next due on top. Keys
// that are due at the same time come out in the order in which they were put in. Times are those of a
// [dueloop.Loop].
//
// Invariant, which checkInvariants in the tests asserts: the slots of keys are those in order.
type dueHeap[T comparable] struct {
	keys keytable.Table[T, waitingKey]
	// order has for each key when it is due. Ties are numbered in the order in which keys were put in.
	order slotheap.Heap
	seq   uint32
}

type waitingKey struct {
	since dueloop.Packed // when it was put in
	// onlyRetry reports that only failures have put the key in. Then it does not come if it is given up.
	onlyRetry bool
}

func (h *dueHeap[T]) len() int { return h.order.Len() }

// put makes key, whose hash is hash, due after the delay from now on, or leaves it at an earlier time.
func (h *dueHeap[T]) put(hash keytable.Hash, key T, now, delay time.Duration, isRetry bool) {
	s, k, inserted := h.keys.FindOrInsert(hash, key)
	e := slotheap.Entry{Rank: int64(dueloop.AddSaturated(now, delay)), Tie: h.seq, Slot: s}
	h.seq++
	if inserted {
		k.Value = waitingKey{dueloop.Pack(now), isRetry}
		h.order.Push(e)
		return
	}
	k.Value.onlyRetry = k.Value.onlyRetry && isRetry
	if e.Rank < h.order.At(s).Rank {
		h.order.Replace(e)
	}
}

// takeBackRetry takes out key if only failures have put it in.
func (h *dueHeap[T]) takeBackRetry(hash keytable.Hash, key T) {
	if s, k := h.keys.Find(hash, key); k != nil && k.Value.onlyRetry {
		h.order.Remove(s)
		h.deleteKey(s)
	}
}

// deleteKey deletes the key at s, which is not in order any more.
func (h *dueHeap[T]) deleteKey(s keytable.Slot) {
	h.keys.Delete(s)
	if !h.keys.HasMemory(s) {
		h.order.Release(s)
	}
}

// next returns when the first key is due, and [dueloop.Never] for an empty heap.
func (h *dueHeap[T]) next() time.Duration {
	if h.len() == 0 {
		return dueloop.Never
	}
	return time.Duration(h.order.First().Rank)
}

// popDue takes out up to maxBatch keys that are due at now, and appends them to keys, the earliest first. It
// returns those that only failures have put in as well.
func (h *dueHeap[T]) popDue(now time.Duration, keys []keytable.Hashed[T]) (_ []keytable.Hashed[T], retries batchSet) {
	var slots [maxBatch]keytable.Slot
	n := 0
	for n < len(slots) && h.next() <= now {
		slots[n] = h.order.Pop().Slot
		n++
	}
	h.keys.Preload(slots[:n])
	for i, s := range slots[:n] {
		k := h.keys.At(s)
		if k.Value.onlyRetry {
			retries |= 1 << i
		}
		keys = append(keys, keytable.Hashed[T]{Hash: k.Hash(), Key: k.Key})
		h.deleteKey(s)
	}
	return keys, retries
}

// batchSet is a set of keys of a batch: bit i is that of the i-th key. A batch has maxBatch keys, as a uint64
// bits.
type batchSet uint64

func (b batchSet) has(i int) bool { return b>>i&1 != 0 }

// clear takes out all keys and returns how many there were. It takes constant time.
func (h *dueHeap[T]) clear() int {
	n := h.len()
	*h = dueHeap[T]{}
	return n
}
