// Package keytable keeps a set of keys in numbered slots, each with a value beside it.
//
// It is the one data structure in which the queues and the rate limiters of this module remember
// their keys. A built-in map would do the same; a [Table] differs in what a work queue needs from it:
//
//   - FindOrInsert is one look-up, where a map takes two, and Delete takes the slot and no key.
//   - A slot keeps its number for as long as its key lives, so that lists and heaps can be made of
//     four-byte numbers instead of copies of keys or pointers that the garbage collector follows.
//   - Memory is given back while keys are deleted. A map never shrinks.
//
// # Shape
//
// An index of 64-bit words, open-addressed, leads from a key's hash to the number of its slot. The
// slots live in slabs of [slabLen] entries, which never move once they are full-sized, so growing
// copies no keys.
//
//	hash ──▶ index  [ tag|7 ][   0   ][ tag|2 ][ tag|9 ] …      tag: upper 32 bits of the hash
//	                     │                 │
//	                     ▼                 ▼
//	         slabs  0: [ key value tag ][ … ] …  1: [ … ] …      number = slab·slabLen + place
//
// The home of a key is at its tag's leading bits, and the index is probed linearly from there. So
// doubling the index reads the old one and writes the new one front to back. A deletion moves
// entries of the same run back (Knuth's algorithm R, "The Art of Computer Programming" volume 3,
// section 6.4) and leaves no tombstones, so look-ups stay short however long a table lives.
//
// A Table is not safe for concurrent use.
package keytable

import (
	"fmt"
	"hash/maphash"
	"iter"
	"reflect"

	"github.com/keyedqueue/workqueue/internal/stash"
)

// Slot is the number of a key's place in its table. It is valid from the key's insertion to its
// deletion, and may be given to another key after that.
type Slot uint32

// None is the Slot that no key ever has.
const None Slot = 0

// maxKeys bounds a table, because an index word has 32 bits for a slot.
const maxKeys = 1<<31 - 1

const (
	minIndexLen = 16
	// keptIndexLen is the size (64 KiB) down to which an index shrinks as its keys go. Staying
	// there lets bursts of some thousand keys come and go without allocation.
	keptIndexLen = 1 << 13
)

// Hash is what a table needs to know of a key. It does not depend on the table.
type Hash uint32

// seed is one for all tables of the process. Nothing tells the order of an index to the outside, so
// tables that share a seed cannot feed each other keys in it (which would make long runs).
var seed = maphash.MakeSeed()

// HashOf hashes key. It needs no lock, so callers do it before they take theirs. Like a map, it panics
// with a [runtime.Error] that names the type if key is of an interface type and cannot be hashed.
func HashOf[K comparable](key K) Hash {
	return Hash(maphash.Comparable(seed, key) >> 32)
}

// MayPanic reports whether a method of a table of such keys can panic: because a key cannot be hashed or
// compared, or is not equal to itself.
func MayPanic[K comparable]() bool { return mayPanic(reflect.TypeFor[K]()) }

func mayPanic(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return mayPanic(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if mayPanic(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

// Table is a set of keys of type K, each with a value of type V. The zero Table is empty and ready
// to use, and takes no memory beyond its own until the first key.
//
// Invariants, which checkInvariants in the tests asserts:
//   - Every key is in exactly one slot, and that slot's number is in the index exactly once, at or
//     after the key's home with no empty word between.
//   - Every other slot is in its slab's list of free ones exactly once, and its entry is zero but for
//     the link of that list.
type Table[K comparable, V any] struct {
	// index holds tag<<32|slot, or zero. Its length is zero or a power of two.
	index []uint64
	// shift takes a tag to its home: 32 - log2(len(index)).
	shift uint8
	count int
	// limit is the count at which the index must grow.
	limit int
	// spare has what index was before it grew or shrank.
	spare stash.Stash[uint64]

	slots arena[K, V]
}

// Len returns the number of keys.
func (t *Table[K, V]) Len() int { return t.count }

// Find returns the slot and the entry of key, whose hash is h, or None and nil.
//
// It panics if key is not equal to itself, as a float that is NaN or a struct with one in it.
func (t *Table[K, V]) Find(h Hash, key K) (Slot, *Entry[K, V]) {
	if t.count == 0 {
		CheckKey(key)
		return None, nil
	}
	s, e, _ := t.probe(h, key)
	return s, e
}

// FindOrInsert returns the slot and the entry of key, whose hash is h, and whether it was inserted
// just now, with the zero V.
//
// It panics, with the table unchanged, at the 2³¹st key, and if key is not equal to itself: it could
// never be found again.
func (t *Table[K, V]) FindOrInsert(h Hash, key K) (s Slot, e *Entry[K, V], inserted bool) {
	if t.count >= t.limit {
		t.grow()
	}
	s, e, pos := t.probe(h, key)
	if e != nil {
		return s, e, false
	}
	s, e = t.slots.alloc()
	e.Key, e.tag = key, h
	t.index[pos] = uint64(h)<<32 | uint64(s)
	t.count++
	return s, e, true
}

// Delete removes the key that lives in s, and zeroes its entry.
func (t *Table[K, V]) Delete(s Slot) {
	e := t.slots.at(s)
	word := uint64(e.tag)<<32 | uint64(s)
	mask := len(t.index) - 1
	pos := t.home(e.tag)
	for t.index[pos&mask] != word {
		pos++
	}
	t.closeGap(pos & mask)
	t.slots.release(s, e)
	t.count--
	if n := len(t.index); n > keptIndexLen && t.count < n/16 {
		t.resizeIndex(max(keptIndexLen, n/4))
	}
}

// Slabs returns the number of slabs, for [Table.Slab].
func (t *Table[K, V]) Slabs() int { return len(t.slots.slabs) }

// Slab returns the slots of slab n with their entries, some hundred at most, none if there is no such
// slab. Entries in which no key lives have the zero V. The table must not change meanwhile.
func (t *Table[K, V]) Slab(n int) iter.Seq2[Slot, *Entry[K, V]] {
	return func(yield func(Slot, *Entry[K, V]) bool) {
		if n >= len(t.slots.slabs) {
			return
		}
		entries := t.slots.slabs[n].entries
		for i := range entries {
			if !yield(Slot(n*slabLen+i), &entries[i]) {
				return
			}
		}
	}
}

// HasMemory reports whether the table keeps memory for s, whether or not a key lives there.
func (t *Table[K, V]) HasMemory(s Slot) bool {
	n := int(s / slabLen)
	return n < len(t.slots.slabs) && t.slots.slabs[n].entries != nil
}

// At returns the entry at s, in which a key must live.
func (t *Table[K, V]) At(s Slot) *Entry[K, V] { return t.slots.at(s) }

func (t *Table[K, V]) home(h Hash) int { return int(h >> (t.shift & 31)) }

// probe returns key's slot and entry or, for a key that is not there, the empty position of the index
// at which it belongs. The index must have room.
func (t *Table[K, V]) probe(h Hash, key K) (Slot, *Entry[K, V], int) {
	index := t.index
	for pos := t.home(h); ; pos++ {
		pos &= len(index) - 1
		word := index[pos]
		if Hash(word>>32) == h && word != 0 {
			if e := t.slots.at(Slot(word)); e.Key == key {
				return Slot(word), e, pos
			}
		} else if word == 0 {
			CheckKey(key)
			return None, nil, pos
		}
	}
}

// CheckKey panics for the keys for which HashOf or Find would, without hashing. Tables call it where a key
// was not found, which a key that is not equal to itself never is.
func CheckKey[K comparable](key K) {
	if key != key {
		// The type alone: this may be under a lock, and %v would call a String method of the caller's.
		panic(fmt.Sprintf("workqueue: key of type %T is not equal to itself (NaN)", key))
	}
}

// closeGap empties index[gap] and moves the words after it so that no look-up stops too early: a
// word moves into the gap unless its home lies behind the gap.
func (t *Table[K, V]) closeGap(gap int) {
	mask := len(t.index) - 1
	for pos := (gap + 1) & mask; t.index[pos] != 0; pos = (pos + 1) & mask {
		word := t.index[pos]
		if distance := (pos - t.home(Hash(word>>32))) & mask; distance >= (pos-gap)&mask {
			t.index[gap] = word
			gap = pos
		}
	}
	t.index[gap] = 0
}

func (t *Table[K, V]) grow() {
	if t.count >= maxKeys {
		panic("workqueue: more than 2147483647 keys")
	}
	t.resizeIndex(max(minIndexLen, 2*len(t.index)))
}

func (t *Table[K, V]) resizeIndex(n int) {
	old := t.index
	t.index = t.spare.Get(n)
	t.shift = 32 - uint8(log2(n))
	t.limit = min(n/4*3, maxKeys)
	for _, word := range old {
		if word == 0 {
			continue
		}
		pos := t.home(Hash(word >> 32))
		for t.index[pos&(n-1)] != 0 {
			pos++
		}
		t.index[pos&(n-1)] = word
	}
	if len(old) >= keptIndexLen {
		clear(old)
		t.spare.Put(old)
	}
}
