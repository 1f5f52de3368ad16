package keytable

import (
	"fmt"
	"math/bits"
	"unsafe"
)

const (
	// slabLen is the number of entries of a slab: small enough that a slab of usual keys is an
	// allocation of a size class, large enough that a million keys have only 2,000 of them.
	slabLen = 512
	// firstSlabLen is what the first slab starts with. It grows by copying, so that a queue of three
	// keys does not pay for 512.
	firstSlabLen = 8
	// keptBytes is how much memory of empty slabs is kept for the next burst.
	keptBytes = 128 << 10

	wordBits     = 64
	wordsPerSlab = slabLen / wordBits
)

type entry[K comparable, V any] struct {
	key   K
	value V
	tag   Hash
}

// slab hands out the numbers of entries, the lowest free one first: entries of one burst lie beside
// each other, and the last slabs are the first to run empty and to be given back.
//
// Two levels of bitmaps find the lowest free one in a few instructions.
type slab[K comparable, V any] struct {
	slabs [][]entry[K, V]
	// free has a bit for each slot, set while nobody lives there; wordsPerSlab words a slab.
	free []uint64
	// open has a bit for each word of free, set while that word is not zero.
	open []uint64
	// firstOpen is a lower bound of the first word of open that is not zero.
	firstOpen int
	// empty counts the full-sized slabs in which nobody lives.
	empty int
}

func (a *slab[K, V]) at(s Slot) *entry[K, V] { return &a.slabs[s/slabLen][s%slabLen] }

// alloc takes the lowest free slot.
func (a *slab[K, V]) alloc() Slot {
	for a.firstOpen < len(a.open) && a.open[a.firstOpen] == 0 {
		a.firstOpen++
	}
	if a.firstOpen == len(a.open) {
		a.addSlab()
	}
	w := a.firstOpen*wordBits + bits.TrailingZeros64(a.open[a.firstOpen])
	s := Slot(w*wordBits + bits.TrailingZeros64(a.free[w]))
	if c := int(s) / slabLen; int(s)%slabLen >= len(a.slabs[c]) {
		a.grow(c)
	} else if c != 0 && a.free[w] == ^uint64(0) && a.isEmpty(c) {
		a.empty--
	}
	a.free[w] &= a.free[w] - 1
	if a.free[w] == 0 {
		a.open[w/wordBits] &^= 1 << (w % wordBits)
	}
	return s
}

// release zeroes the entry of s, so that the collector gets what its key pointed to, and frees s.
func (a *slab[K, V]) release(s Slot) {
	*a.at(s) = entry[K, V]{}
	w := int(s) / wordBits
	a.free[w] |= 1 << (s % wordBits)
	a.open[w/wordBits] |= 1 << (w % wordBits)
	a.firstOpen = min(a.firstOpen, w/wordBits)
	if a.free[w] == ^uint64(0) {
		a.releaseSlab(int(s) / slabLen)
	}
}

// addSlab adds the numbers of one more slab, all free, and no memory for it yet.
func (a *slab[K, V]) addSlab() {
	first := len(a.slabs) == 0
	a.slabs = append(a.slabs, nil)
	for range wordsPerSlab {
		w := len(a.free)
		a.free = append(a.free, ^uint64(0))
		if w/wordBits == len(a.open) {
			a.open = append(a.open, 0)
		}
		a.open[w/wordBits] |= 1 << (w % wordBits)
	}
	if first {
		a.free[0] &^= 1 << None
	}
	a.firstOpen = min(a.firstOpen, len(a.open)-1)
}

// grow gives slab c memory: all that it will ever have or, for the first, twice what it has.
func (a *slab[K, V]) grow(c int) {
	n := slabLen
	if c == 0 {
		n = max(firstSlabLen, 2*len(a.slabs[0]))
	}
	grown := make([]entry[K, V], n)
	copy(grown, a.slabs[c])
	a.slabs[c] = grown
}

// isEmpty reports whether nobody lives in slab c.
func (a *slab[K, V]) isEmpty(c int) bool {
	for _, word := range a.free[c*wordsPerSlab:][:wordsPerSlab] {
		if word != ^uint64(0) {
			return false
		}
	}
	return true
}

// releaseSlab gives slab c back if nobody lives in it and enough empty ones are kept already. The
// first slab always stays.
func (a *slab[K, V]) releaseSlab(c int) {
	if c == 0 || !a.isEmpty(c) {
		return
	}
	size := int(unsafe.Sizeof(entry[K, V]{})) * slabLen
	if (a.empty+1)*size <= keptBytes {
		a.empty++
		return
	}
	a.slabs[c] = nil
	a.trim()
}

// trim forgets the numbers at the end that have no memory behind them, and the bitmaps' own memory
// with them.
func (a *slab[K, V]) trim() {
	n := len(a.slabs)
	for n > 0 && a.slabs[n-1] == nil {
		n--
	}
	words := n * wordsPerSlab
	a.slabs = resliced(a.slabs, n)
	a.free = resliced(a.free, words)
	a.open = resliced(a.open, (words+wordBits-1)/wordBits)
	if used := words % wordBits; used != 0 {
		a.open[len(a.open)-1] &= 1<<used - 1
	}
	a.firstOpen = min(a.firstOpen, len(a.open))
}

// resliced returns s[:n], in less memory if s has much more than that needs.
func resliced[S ~[]E, E any](s S, n int) S {
	clear(s[n:])
	if cap(s) > 64 && cap(s) > 4*n {
		return append(make(S, 0, 2*n), s[:n]...)
	}
	return s[:n]
}

func log2(n int) int { return bits.Len(uint(n)) - 1 }

func notItself[K comparable](key K) string {
	return fmt.Sprintf("workqueue: key %v of type %T is not equal to itself (NaN)", key, key)
}
