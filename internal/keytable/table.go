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
// An index leads from a key's hash to the number of its slot. It is an array of groups of 32 bytes, each
// with room for six slots and a byte of each one's hash, the tag. The slots live in slabs of [slabLen]
// entries, which never move once they are full-sized, so growing copies no keys.
//
//	hash ──▶ index  [ tags │ 7 · 2 · · · ][ tags │ · 9 · · · · ][ …
//	                         │   │                   │
//	                         ▼   ▼                   ▼
//	         slabs  0: [ key value hash ][ … ] …  1: [ … ] …      number = slab·slabLen + place
//
// A key's home is the group that the leading bits of its hash tell. If that is full, the key lives in the
// next group that is not, and each group that it passed counts it, so that a look-up knows whether to go on.
// A deletion counts back and leaves nothing behind, so look-ups stay short however long a table lives.
// (The counters are those of Meta's F14; the comparison of all tags at once is that of Swiss tables.)
//
// A Table is not safe for concurrent use.
package keytable

import (
	"fmt"
	"hash/maphash"
	"iter"
	"reflect"
	"runtime"

	"github.com/keyedqueue/workqueue/internal/stash"
)

// Slot is the number of a key's place in its table. It is valid from the key's insertion to its
// deletion, and may be given to another key after that.
type Slot uint32

// None is the Slot that no key ever has.
const None Slot = 0

// maxKeys bounds a table, because a slot has 32 bits.
const maxKeys = 1<<31 - 1

const (
	// keysPerGroup is how many of a group's places are used on average before the index grows. Then one key in
	// twenty lives outside of its home; with one more to a group it would be one in ten.
	keysPerGroup = 4
	minGroups    = 2
	// keptGroups is the length (64 KiB) down to which an index shrinks as its keys go. Staying there lets
	// bursts of some thousand keys come and go without allocation.
	keptGroups = 1 << 11
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
//   - Every key is in exactly one slot, and that slot's number is in the index exactly once: in
//     its home or, counted as passed by all groups between, in a later one.
//   - Every other slot is in its slab's list of free ones exactly once, and its entry is zero but for
//     the link of that list.
type Table[K comparable, V any] struct {
	// index is empty or has a power of two of groups.
	index []group
	// shift takes a hash to its home: 32 - log2(len(index)).
	shift uint8
	count int
	// limit is the count at which the index must grow.
	limit int
	// spare has what index was before it grew or shrank.
	spare stash.Stash[group]

	slots arena[K, V]
}

// Len returns the number of keys.
func (t *Table[K, V]) Len() int { return t.count }

// Find returns the slot and the entry of key, whose hash is h, or None and nil.
//
// It panics if key is not equal to itself, as a float that is NaN or a struct with one in it.
func (t *Table[K, V]) Find(h Hash, key K) (s Slot, e *Entry[K, V]) {
	if t.count != 0 {
		s, e = t.probe(h, key)
	}
	if e == nil {
		CheckKey(key)
	}
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
	// A new key's home can mostly tell that it is new, and has a place for it.
	home := &t.index[t.home(h)]
	if home.match(h)|home.passed() != 0 {
		if s, e := t.probe(h, key); e != nil {
			return s, e, false
		}
	}
	CheckKey(key)
	s, e = t.slots.alloc()
	e.Key, e.tag = key, h
	if !home.put(h, s) {
		t.insert(h, s)
	}
	t.count++
	return s, e, true
}

// Delete removes the key that lives in s, and zeroes its entry.
func (t *Table[K, V]) Delete(s Slot) {
	e := t.slots.at(s)
	t.remove(e.tag, s)
	t.slots.release(s, e)
	t.count--
	if len(t.index) > keptGroups && t.count < len(t.index)/8 {
		t.shrink()
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

// group returns group n, taken round at the end of the index.
func (t *Table[K, V]) group(n int) *group { return &t.index[n&(len(t.index)-1)] }

// probe returns key's slot and entry, or None and nil. The index must not be empty.
func (t *Table[K, V]) probe(h Hash, key K) (Slot, *Entry[K, V]) {
	// One round is enough, and only its count ends it where every group of a small index was full at some time,
	// and the keys that passed it are still there.
	home := t.home(h)
	for n, last := home, home+len(t.index)-1; ; n++ {
		g := t.group(n)
		for set := g.match(h); set != 0; set &= set - 1 {
			s := g.slots[placeOf(set)]
			if e := t.slots.at(s); e.Key == key {
				return s, e
			}
		}
		if n == last || g.passed() == 0 {
			return None, nil
		}
	}
}

// insert puts s, whose key has hash h, into the first group from its home on that has a place.
func (t *Table[K, V]) insert(h Hash, s Slot) {
	for n := t.home(h); ; n++ {
		g := t.group(n)
		if g.put(h, s) {
			return
		}
		g.pass(1)
	}
}

// remove takes s, whose key has hash h, out of the index.
func (t *Table[K, V]) remove(h Hash, s Slot) {
	for n := t.home(h); ; n++ {
		g := t.group(n)
		if g.remove(h, s) {
			return
		}
		g.pass(-1)
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

// grow makes room for more keys: twice as many or, if a burst has left an index that is larger than that, up
// to 16 times as many, since growing step by step moves each key again and again.
func (t *Table[K, V]) grow() {
	if t.count >= maxKeys {
		panic("workqueue: more than 2147483647 keys")
	}
	n := max(minGroups, 2*len(t.index))
	for m := 8 * n; m > n; m /= 2 {
		if index := t.spare.Take(m); index != nil {
			t.moveTo(index)
			return
		}
	}
	t.moveTo(t.spare.Get(n))
}

// shrink gives memory back when few keys are left. The index stays large enough for those who come and go
// around this number of keys not to make it grow and shrink in turn.
func (t *Table[K, V]) shrink() {
	t.moveTo(t.spare.Get(max(keptGroups, len(t.index)/4)))
}

// moveTo makes index, whose groups are empty, the table's.
func (t *Table[K, V]) moveTo(index []group) {
	old := t.index
	t.index = index
	t.shift = 32 - uint8(log2(len(index)))
	t.limit = min(len(index)*keysPerGroup, maxKeys)
	// By slabs, which are in order in memory, and not by the old index, which leads to them in none. The homes of
	// a slab's keys are read before the first of them is changed, so that the processor waits for memory once
	// and not for each.
	for n := range t.slots.slabs {
		var tags uint64
		for _, h := range t.slots.live(n) {
			tags |= t.index[t.home(h)].tags
		}
		runtime.KeepAlive(tags)
		for s, h := range t.slots.live(n) {
			t.insert(h, s)
		}
	}
	if len(old) >= keptGroups {
		clear(old)
		t.spare.Put(old)
	}
}
