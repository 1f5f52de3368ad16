// Package keytable keeps a set of keys in numbered slots, each with a value beside it.
//
// The queues and the rate limiters of this module remember their keys in it. A [Table] differs from a map in
// what a work queue needs:
//
//   - FindOrInsert is one look-up, where a map takes two, and Delete takes the slot and no key.
//   - A slot keeps its number for as long as its key lives, so that lists and heaps can be made of
//     four-byte numbers instead of copies of keys or pointers that the garbage collector follows.
//   - Memory is given back while keys are deleted. Neither that nor growing makes one call wait for a million
//     keys.
//
// # Shape
//
// An index leads from a key's hash to the number of its slot. It is an array of buckets of 32 bytes, each
// with room for six slots and a byte of each one's hash, the tag. The slots live in slabs of [slabLen]
// entries, which never move once they are full-sized, so growing copies no keys. See index.go.
//
//	hash ──▶ index  [ tags │ 7 · 2 · · · ][ tags │ · 9 · · · · ][ …
//	                         │   │                   │
//	                         ▼   ▼                   ▼
//	         slabs  0: [ key value hash ][ … ] …  1: [ … ] …      number = slab·slabLen + place
//
// The leading bits of a key's hash are the number of a bucket, its home. If the home is full, the key lives
// in the next bucket that has a place, and each bucket that it passed counts it, so that a look-up knows
// whether to continue. A deletion counts down again and leaves nothing behind, so look-ups stay short however
// long a table lives. (The counters are those of Meta's F14; the comparison of all tags at once is that of
// Swiss tables.)
//
// A Table is not safe for concurrent use.
package keytable

import (
	"fmt"
	"hash/maphash"
	"iter"

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
	// keysPerBucket is how many of a bucket's places are used on average before the index grows. Then one key in
	// twenty lives outside of its home; with one more to a bucket it would be one in ten.
	keysPerBucket = 4
	minBuckets    = 2
	// keptBuckets is the length (64 KiB) down to which an index shrinks as its keys go. Staying there lets
	// bursts of a few thousand keys come and go without allocation.
	keptBuckets = 1 << 11
	// largestSpare is the length (8 MiB, a million keys) up to which an index is kept for the next burst.
	largestSpare = 1 << 18
)

// Hash is what a table needs to know of a key. It does not depend on the table.
type Hash uint32

// seed is one for all tables of the process. (Copying one table to another of the same seed, in the order of
// the index, would fill bucket after bucket. Tables do not show that order.)
var seed = maphash.MakeSeed()

// HashOf hashes key. It needs no lock, so callers do it before they take theirs. Like a map, it panics
// with a [runtime.Error] that names the type if key is of an interface type and cannot be hashed.
func HashOf[K comparable](key K) Hash { return Hash(maphash.Comparable(seed, key) >> 32) }

// Table is a set of keys of type K, each with a value of type V. The zero Table is empty and ready
// to use, and takes no memory beyond its own until the first key.
//
// Invariants, which checkInvariants in the tests asserts:
//   - Every key is in exactly one slot, and that slot's number is in the index exactly once: in its home
//     or, counted as passed by all buckets between, in a later one. While keys are moving, it may be in the
//     old index, too, or there alone if its slab has not been moved.
//   - Every other slot is free, and its entry is zero.
type Table[K comparable, V any] struct {
	index index
	count int
	// limit is the count at which the index must grow.
	limit int
	// old is what index was before it grew or shrank, while keys are moving. Slabs below moved are done.
	old   index
	moved int
	calls uint32 // of FindOrInsert while keys are moving
	// spare has the buckets of such indexes.
	spare stash.Stash[bucket]

	slots arena[K, V]
}

func (t *Table[K, V]) Len() int { return t.count }

// Find returns the slot and the entry of key, whose hash is h, or None and nil. It panics if key is not equal
// to itself, as a float that is NaN or a struct with one in it.
func (t *Table[K, V]) Find(h Hash, key K) (s Slot, e *Entry[K, V]) {
	if t.count != 0 {
		if t.isMoving() {
			s, e = t.findMoving(h, key)
		} else {
			s, e = t.probe(&t.index, h, key)
		}
	}
	if e == nil {
		CheckKey(key)
	}
	return s, e
}

// Lookup is Find that spares the hash while there are no keys.
func (t *Table[K, V]) Lookup(key K) (s Slot, e *Entry[K, V]) {
	if t.Len() == 0 {
		return None, nil
	}
	return t.Find(HashOf(key), key)
}

// FindOrInsert returns the slot and the entry of key, whose hash is h, and whether it was inserted just now,
// with the zero V. It panics, with the table unchanged, at the 2³¹st key, and if key is not equal to itself.
func (t *Table[K, V]) FindOrInsert(h Hash, key K) (s Slot, e *Entry[K, V], inserted bool) {
	if t.count >= t.limit {
		t.grow()
	}
	if t.isMoving() {
		s, e := t.findMoving(h, key)
		if t.calls++; t.calls%callsPerMove == 0 {
			t.moveSome()
		}
		if e != nil {
			return s, e, false
		}
	}
	// For most new keys a look at the home shows that they are new, and the home has a place for them.
	home := t.index.homeBucket(h)
	if home.match(h)|home.passed() != 0 {
		if s, e := t.probe(&t.index, h, key); e != nil {
			return s, e, false
		}
	}
	CheckKey(key)
	s, e = t.slots.alloc()
	e.Key, e.hash = key, h
	if !home.put(h, s) {
		t.index.insert(h, s)
	}
	t.count++
	return s, e, true
}

// Delete removes the key that lives in s, and zeroes its entry.
//
// What stands beside the table has to follow: lists and heaps must not have s any more, and each column, list
// and heap must Release s if the table has no memory for it afterwards. So each table with anything beside it
// has one function that calls Delete. checkInvariants finds a list or heap that it forgets, and
// forgotten_test.go memory that it does not release.
func (t *Table[K, V]) Delete(s Slot) {
	e := t.slots.at(s)
	if t.isMoving() {
		t.moveSome()
		t.removeMoving(e.hash, s)
	} else {
		t.index.remove(e.hash, s)
	}
	t.slots.release(s, e)
	t.count--
	if n := len(t.index.buckets); n > keptBuckets && t.count < n/8 {
		t.shrink()
	}
}

// Slabs returns the number of slabs, for [Table.LiveSlots].
func (t *Table[K, V]) Slabs() int { return len(t.slots.slabs) }

// LiveSlots returns the slots of slab n in which keys live. The table must not change meanwhile.
func (t *Table[K, V]) LiveSlots(n int) iter.Seq[Slot] { return t.slots.live(n) }

// HasMemory reports whether the table keeps memory for s, whether or not a key lives there.
func (t *Table[K, V]) HasMemory(s Slot) bool {
	n := int(s / slabLen)
	return n < len(t.slots.slabs) && t.slots.slabs[n].entries != nil
}

// At returns the entry at s, in which a key must live.
func (t *Table[K, V]) At(s Slot) *Entry[K, V] { return t.slots.at(s) }

// CheckKey panics for an unusable key (NaN, unhashable), without hashing it. A table calls it only if it has
// not found a key, because a key that is not equal to itself is never found.
func CheckKey[K comparable](key K) {
	if key != key {
		// The type alone: this may be under a lock, and %v would call a String method of the caller's.
		panic(fmt.Sprintf("workqueue: key of type %T is not equal to itself (NaN)", key))
	}
}
