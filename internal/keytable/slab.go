package keytable

import (
	"iter"
	"math/bits"
	"unsafe"

	"github.com/keyedqueue/workqueue/internal/stash"
)

const (
	// slabLen is the number of entries of a slab: small enough that a slab of usual keys is an
	// allocation of a size class, large enough that a million keys have only 2,000 of them.
	slabLen = 512
	// firstSlabLen is what the first slab starts with. It grows by copying, so three keys do not pay for 512.
	firstSlabLen = 8
	// keptBytes is how much memory of empty slabs is kept for the next burst. One empty slab is kept even if it
	// is larger, so that a key that comes and goes at the edge of a slab does not take a new one each time.
	keptBytes = 128 << 10
)

// Entry is a key and its value. A pointer to one is valid until the table's next FindOrInsert or Delete.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
	hash  Hash // the key's hash
}

func (e *Entry[K, V]) Hash() Hash { return e.hash }

// slab is a run of slots with consecutive numbers.
type slab[K comparable, V any] struct {
	entries []Entry[K, V]
	// free has a bit for each entry, set if no key lives there. It is nil in a slab without memory.
	free *[slabLen / 64]uint64
	// live is the number of the other entries. None counts as one.
	live int
}

func (b *slab[K, V]) hasRoom() bool { return b.live < len(b.entries) }

// take returns the place of the first free entry, which is free no more.
func (b *slab[K, V]) take() int {
	i := 0
	for b.free[i] == 0 {
		i++
	}
	place := i*64 + bits.TrailingZeros64(b.free[i])
	b.free[i] &= b.free[i] - 1 // Clears the lowest bit that is set.
	b.live++
	return place
}

func (b *slab[K, V]) giveBack(place int) {
	b.free[place/64] |= 1 << (place % 64)
	b.live--
}

// arena hands out slots. It fills the lowest slab that has room, so that the last ones run empty and
// can be given back when there are fewer keys.
//
// Invariants, which checkInvariants in the tests asserts:
//   - The entry of a free slot is zero. None is not free.
//   - A slab's bit in open is set if and only if the slab has a free slot or no memory.
//   - No slab below current has both memory and a free slot.
//   - empty is the number of slabs that have memory and no live slot. The first always has one, None.
type arena[K comparable, V any] struct {
	slabs []slab[K, V]
	open  []uint64
	// current is the slab to fill.
	current int
	empty   int
	// spare has the memory of the slabs that were given back.
	spare stash.Stash[Entry[K, V]]
}

func (a *arena[K, V]) at(s Slot) *Entry[K, V] {
	return &a.slabs[s/slabLen].entries[s%slabLen]
}

// alloc takes a slot. Its entry is zero.
func (a *arena[K, V]) alloc() (Slot, *Entry[K, V]) {
	if len(a.slabs) == 0 || !a.slabs[a.current].hasRoom() {
		a.makeRoom()
	}
	b := &a.slabs[a.current]
	if b.live == 0 {
		a.empty--
	}
	place := b.take()
	if !b.hasRoom() {
		a.open[a.current/64] &^= 1 << (a.current % 64)
	}
	return Slot(a.current*slabLen + place), &b.entries[place]
}

// release zeroes e, the entry at s, so that the collector gets what its key points to, and frees s.
func (a *arena[K, V]) release(s Slot, e *Entry[K, V]) {
	n := int(s / slabLen)
	b := &a.slabs[n]
	*e = Entry[K, V]{}
	if !b.hasRoom() {
		a.open[n/64] |= 1 << (n % 64)
	}
	b.giveBack(int(s % slabLen))
	a.current = min(a.current, n)
	if b.live == 0 {
		a.releaseSlab(n)
	}
}

// makeRoom makes current the lowest slab with a free slot.
func (a *arena[K, V]) makeRoom() {
	if a.current == 0 && len(a.slabs) > 0 && len(a.slabs[0].entries) < slabLen {
		a.growFirst()
		return
	}
	a.current = a.lowestOpen()
	switch b := &a.slabs[a.current]; {
	case b.entries != nil:
	case a.current == 0:
		a.growFirst()
	default:
		b.entries, b.free = a.spare.Get(slabLen), new([slabLen / 64]uint64)
		for i := range b.free {
			b.free[i] = ^uint64(0)
		}
		a.empty++
	}
}

// lowestOpen returns the lowest slab that has room, which may be a new one without memory.
func (a *arena[K, V]) lowestOpen() int {
	for i, word := range a.open {
		if word != 0 {
			return i*64 + bits.TrailingZeros64(word)
		}
	}
	n := len(a.slabs)
	a.slabs = append(a.slabs, slab[K, V]{})
	if n/64 == len(a.open) {
		a.open = append(a.open, 0)
	}
	a.open[n/64] = 1 << (n % 64) // no other slab is open
	return n
}

// growFirst gives the first slab room for twice as many entries.
func (a *arena[K, V]) growFirst() {
	b := &a.slabs[0]
	n := len(b.entries)
	grown := make([]Entry[K, V], max(firstSlabLen, 2*n))
	copy(grown, b.entries)
	b.entries = grown
	// As long as the first slab is not full-sized, no other has a bit in open.
	a.open[0] = 1
	if n == 0 {
		b.live = 1 // None
		b.free = new([slabLen / 64]uint64)
	}
	for place := max(n, 1); place < len(grown); place++ {
		b.free[place/64] |= 1 << (place % 64)
	}
}

// live returns the slots of slab n in which keys live: none if there is no such slab.
func (a *arena[K, V]) live(n int) iter.Seq[Slot] {
	return func(yield func(Slot) bool) {
		if n >= len(a.slabs) || a.slabs[n].live == 0 {
			return
		}
		b := &a.slabs[n]
		for i, free := range b.free {
			for live := ^free; live != 0; live &= live - 1 {
				place := i*64 + bits.TrailingZeros64(live)
				if place >= len(b.entries) {
					return
				}
				if s := Slot(n*slabLen + place); s != None && !yield(s) {
					return
				}
			}
		}
	}
}

// releaseSlab gives back the memory of slab n, in which no key lives, unless it is within what is kept.
func (a *arena[K, V]) releaseSlab(n int) {
	size := slabLen * int(unsafe.Sizeof(Entry[K, V]{}))
	if a.empty == 0 || (a.empty+1)*size <= keptBytes {
		a.empty++
		return
	}
	a.spare.Put(a.slabs[n].entries)
	a.slabs[n] = slab[K, V]{}
	a.current = 0 // The slab to fill may be this one. makeRoom finds the lowest.
	a.trim()
}

// trim forgets the slabs at the end that have no memory.
func (a *arena[K, V]) trim() {
	n := len(a.slabs)
	for a.slabs[n-1].entries == nil {
		n--
	}
	words := (n + 63) / 64
	clear(a.open[words:])
	if n%64 != 0 {
		a.open[words-1] &= 1<<(n%64) - 1
	}
	a.slabs = shortened(a.slabs, n)
	a.open = shortened(a.open, words)
}

// shortened returns s[:n], in less memory if s has much more than that takes.
func shortened[E any](s []E, n int) []E {
	if cap(s) > 64 && cap(s) > 4*n {
		return append(make([]E, 0, 2*n), s[:n]...)
	}
	return s[:n]
}

func log2(n int) int { return bits.Len(uint(n)) - 1 }
