package workqueue

import (
	"math"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// dueHeap keeps keys until they are due, each at most once: the earliest due time is on top. Keys that
// are due at the same time come out in the order in which they were put in.
//
// It is a heap in which a node has four children, so it is half as deep as a binary one, and the
// children are neighbours in memory, 64 bytes of it. An entry has no pointers, so the collector does not
// look at the heap. A key's slot in the table knows where in the heap its entry is.
//
// Invariants, which checkInvariants in the tests asserts:
//   - No entry is due before its parent.
//   - For each entry, the position at its slot in keys is that of the entry, and keys has no others.
type dueHeap[T comparable] struct {
	keys    keytable.Table[T, waitingKey]
	entries []dueEntry

	// epoch is the time that is zero to the entries. It is set anew when the first key is put in.
	epoch time.Time
	// seq numbers the entries in the order in which they were put in, modulo 2^32: entries of equal
	// times that are further apart than 2^31 may come out in the wrong order.
	seq uint32
}

// waitingKey is what is known of a key beside its entry.
type waitingKey struct {
	// position is the index of the key's entry.
	position uint32
	// since is the time after the heap's epoch at which the key was put in.
	since packedDuration
}

type dueEntry struct {
	// due is the time after the heap's epoch at which the key is due.
	due  time.Duration
	slot keytable.Slot
	seq  uint32
}

func (e dueEntry) before(f dueEntry) bool {
	return e.due < f.due || e.due == f.due && int32(e.seq-f.seq) < 0
}

// never is the due time of what is due too late to be told.
const never time.Duration = math.MaxInt64

const heapArity = 4

// minHeapLen is the number of entries for which memory is kept.
const minHeapLen = 1 << 10

func (h *dueHeap[T]) len() int { return len(h.entries) }

// put makes key, whose hash is hash, due after the delay from now on, or leaves it at its time if that
// is earlier. It returns whether the earliest due time has changed.
func (h *dueHeap[T]) put(hash keytable.Hash, key T, now time.Time, delay time.Duration) bool {
	if len(h.entries) == 0 {
		h.epoch = now
	}
	e := dueEntry{due: h.dueTime(now, delay), seq: h.seq}
	h.seq++
	s, k, inserted := h.keys.FindOrInsert(hash, key)
	e.slot = s
	pos := len(h.entries)
	if inserted {
		h.entries = append(h.entries, e)
		k.Value.since = packed(now.Sub(h.epoch))
	} else {
		pos = int(k.Value.position)
		if h.entries[pos].due <= e.due {
			return false
		}
	}
	return h.up(pos, e) == 0
}

// popDue takes out a key that is due at now, the earliest first.
func (h *dueHeap[T]) popDue(now time.Time) (key keytable.Hashed[T], ok bool) {
	if len(h.entries) == 0 || h.entries[0].due > now.Sub(h.epoch) || h.entries[0].due == never {
		return key, false
	}
	s := h.entries[0].slot
	k := h.keys.At(s)
	key = keytable.Hashed[T]{Hash: k.Hash(), Key: k.Key}
	h.keys.Delete(s)
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries = h.entries[:last]
	if last > 0 {
		h.down(0, e)
	}
	if c := cap(h.entries); c > minHeapLen && last < c/4 {
		h.entries = append(make([]dueEntry, 0, max(minHeapLen, c/2)), h.entries...)
	}
	return key, true
}

// untilNext returns how long after now the next key is due, which is not positive if it is due
// already. There must be one.
func (h *dueHeap[T]) untilNext(now time.Time) time.Duration {
	if h.entries[0].due == never {
		return never
	}
	return h.epoch.Add(h.entries[0].due).Sub(now)
}

// clear takes out all keys and returns how many there were.
func (h *dueHeap[T]) clear() int {
	n := len(h.entries)
	*h = dueHeap[T]{}
	return n
}

// up puts e into position pos or, as long as e is before the parent, moves the parent down and tries
// again one level up. It returns where e ended.
func (h *dueHeap[T]) up(pos int, e dueEntry) int {
	for pos > 0 {
		parent := (pos - 1) / heapArity
		if !e.before(h.entries[parent]) {
			break
		}
		h.place(pos, h.entries[parent])
		pos = parent
	}
	h.place(pos, e)
	return pos
}

// down puts e into position pos or, as long as a child is before e, moves the first child up and tries
// again one level down.
func (h *dueHeap[T]) down(pos int, e dueEntry) {
	for {
		child := heapArity*pos + 1
		if child >= len(h.entries) {
			break
		}
		first := child
		for i := child + 1; i < min(child+heapArity, len(h.entries)); i++ {
			if h.entries[i].before(h.entries[first]) {
				first = i
			}
		}
		if !h.entries[first].before(e) {
			break
		}
		h.place(pos, h.entries[first])
		pos = first
	}
	h.place(pos, e)
}

func (h *dueHeap[T]) place(pos int, e dueEntry) {
	h.entries[pos] = e
	h.keys.At(e.slot).Value.position = uint32(pos)
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
	for i := range h.entries {
		if e := &h.entries[i]; e.due != never {
			e.due = max(e.due, 0) - math.MaxInt64
		}
	}
	h.epoch = now
	// Times before the old epoch have become equal. A sorted slice is a heap.
	slices.SortFunc(h.entries, func(e, f dueEntry) int {
		if e.before(f) {
			return -1
		}
		return 1
	})
	for pos, e := range h.entries {
		h.place(pos, e)
		since := &h.keys.At(e.slot).Value.since
		*since = packed(addSaturated(since.duration(), -math.MaxInt64))
	}
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
