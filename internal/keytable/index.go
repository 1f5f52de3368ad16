package keytable

import "math/bits"

// index leads from hashes to slots. The package comment describes its shape.
type index struct {
	// buckets is empty or has a power of two of them.
	buckets []bucket
	// shift takes a hash to its home: 32 - log2(len(buckets)).
	shift uint8
}

// indexOf makes an index of buckets that are empty.
func indexOf(buckets []bucket) index {
	return index{buckets: buckets, shift: 32 - uint8(log2(len(buckets)))}
}

// home returns the number of the first bucket in which a key of hash h may be.
func (x *index) home(h Hash) int { return int(h >> (x.shift & 31)) }

func (x *index) homeBucket(h Hash) *bucket { return &x.buckets[x.home(h)] }

// bucket returns bucket n modulo the number of buckets.
func (x *index) bucket(n int) *bucket { return &x.buckets[n&(len(x.buckets)-1)] }

// insert puts s, whose key has hash h, into the first bucket from its home on that has a place.
func (x *index) insert(h Hash, s Slot) {
	for n := x.home(h); ; n++ {
		g := x.bucket(n)
		if g.put(h, s) {
			return
		}
		g.pass(1)
	}
}

// remove takes out s, which is in the index, and whose key has hash h.
func (x *index) remove(h Hash, s Slot) {
	for n := x.home(h); ; n++ {
		g := x.bucket(n)
		if place := g.find(h, s); place >= 0 {
			g.free(place)
			return
		}
		g.pass(-1)
	}
}

// has reports whether s, whose key has hash h, is in the index.
func (x *index) has(h Hash, s Slot) bool {
	home := x.home(h)
	for n := home; n < home+len(x.buckets); n++ {
		g := x.bucket(n)
		if g.find(h, s) >= 0 {
			return true
		}
		if g.passed() == 0 {
			break
		}
	}
	return false
}

// probe returns the slot and the entry of key, whose hash is h, or None and nil. The index is not empty.
func (t *Table[K, V]) probe(x *index, h Hash, key K) (Slot, *Entry[K, V]) {
	// The search ends at the first bucket that no key has passed. There may be no such bucket, if each was full
	// at some time and the keys that passed it are still there. Then the search ends after one round.
	home := x.home(h)
	for n, last := home, home+len(x.buckets)-1; ; n++ {
		g := x.bucket(n)
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

// bucket is a piece of the index: up to bucketLen slots, and a byte of each one's hash to find it by. It is
// half a cache line, and all its bytes are compared at once, so that a look-up has neither a second miss nor
// a branch that cannot be predicted.
type bucket struct {
	// tags has, from the lowest byte up, the tag of the key at each of slots, or zero in an empty slot;
	// and in its upper 16 bits how many keys have passed the bucket because it was full. From maxPassed on it
	// counts neither up nor down any more, because the number is not known.
	tags  uint64
	slots [bucketLen]Slot
}

const (
	bucketLen = 6
	maxPassed = 1<<16 - 1

	// lowBits and highBits are the lowest and the highest bit of each tag.
	lowBits  = 0x0101_0101_0101
	highBits = lowBits << 7
)

// tagOf returns the byte by which a bucket distinguishes its keys. Its highest bit is set, so it is not zero.
// The others are the last ones of the hash, because the first ones have led to the bucket.
func tagOf(h Hash) uint64 { return uint64(h)&0x7f | 0x80 }

// match returns a set, for placeOf, of the places that have the tag of h. Rarely it has another.
func (g *bucket) match(h Hash) uint64 {
	// The usual search for zero bytes (Warren, "Hacker's Delight", section 6-1). The borrow of one can make
	// the next byte look like one if it is 1, which is why callers look closer.
	differing := g.tags ^ tagOf(h)*lowBits
	return (differing - lowBits) &^ differing & highBits
}

// placeOf returns the lowest place of a set that is not empty.
func placeOf(set uint64) int { return bits.TrailingZeros64(set) / 8 }

// put gives s, whose key has hash h, a place, and returns false if it is full.
func (g *bucket) put(h Hash, s Slot) bool {
	free := ^g.tags & highBits
	if free == 0 {
		return false
	}
	g.slots[placeOf(free)] = s
	g.tags |= tagOf(h) << ((bits.TrailingZeros64(free) - 7) & 63)
	return true
}

// find returns the place of s, whose key has hash h, or -1 if it is not here.
func (g *bucket) find(h Hash, s Slot) int {
	for set := g.match(h); set != 0; set &= set - 1 {
		if place := placeOf(set); g.slots[place] == s {
			return place
		}
	}
	return -1
}

// free makes place, at which there is a slot, free.
func (g *bucket) free(place int) { g.tags &^= 0xff << (8 * place & 63) }

// passed returns how many keys live in later buckets because there was no place here.
func (g *bucket) passed() uint64 { return g.tags >> 48 }

// pass counts n more of them.
func (g *bucket) pass(n int) {
	if g.passed() != maxPassed {
		g.tags += uint64(n) << 48
	}
}
