package workqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// dueHeap has keys that wait for their time, each at most once, the next due on top. Keys that are due at the
// same time come out in the order in which they were put in. Times are those of a [dueloop.Loop].
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
	// onlyRetry reports that only failures have put the key in. Then takeBackRetry may remove it.
	onlyRetry bool
}

// dueKey is a key whose time has come.
type dueKey[T comparable] struct {
	key       T
	hash      keytable.Hash
	onlyRetry bool
}

func (h *dueHeap[T]) len() int { return h.order.Len() }

// put makes key, whose hash is hash, due after the delay from now on, or leaves it at the earlier time of
// another add.
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
		slotheap.Drop(&h.order, &h.keys, s)
	}
}

// next returns when the first key is due, and [dueloop.Never] for an empty heap.
func (h *dueHeap[T]) next() time.Duration {
	if h.len() == 0 {
		return dueloop.Never
	}
	return time.Duration(h.order.First().Rank)
}

// popDue takes out up to maxBatch keys that are due at now, and appends them to keys, the earliest first.
func (h *dueHeap[T]) popDue(now time.Duration, keys []dueKey[T]) []dueKey[T] {
	var slots [maxBatch]keytable.Slot
	n := 0
	for n < len(slots) && h.next() <= now {
		slots[n] = h.order.Pop().Slot
		n++
	}
	h.keys.Preload(slots[:n])
	for _, s := range slots[:n] {
		k := h.keys.At(s)
		keys = append(keys, dueKey[T]{k.Key, k.Hash(), k.Value.onlyRetry})
		h.keys.Delete(s)
		if !h.keys.HasMemory(s) {
			h.order.Release(s)
		}
	}
	return keys
}

// clear takes out all keys and returns how many there were. It takes constant time.
func (h *dueHeap[T]) clear() int {
	n := h.len()
	*h = dueHeap[T]{}
	return n
}
