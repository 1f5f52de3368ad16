package keytable

import "testing"

// checkInvariants asserts what the comment of Table promises, of a table whose keys were hashed by HashOf.
func (t *Table[K, V]) checkInvariants(tb testing.TB) {
	tb.Helper()
	t.checkHashed(tb, HashOf)
}

// checkHashed is checkInvariants for keys that were hashed by hash.
func (t *Table[K, V]) checkHashed(tb testing.TB, hash func(K) Hash) {
	tb.Helper()
	found := t.checkIndex(tb, &t.index, hash)
	for s := range t.checkIndex(tb, &t.old, hash) {
		if !found[s] && int(s)/slabLen < t.moved {
			tb.Fatalf("slot %d of slab %d is in the old index alone, and %d slabs were moved", s, s/slabLen, t.moved)
		}
		found[s] = true
	}
	if len(found) != t.count {
		tb.Fatalf("%d slots in the index, %d keys counted", len(found), t.count)
	}
	if t.count > keysPerBucket*len(t.index.buckets) {
		tb.Fatalf("%d keys in an index of %d buckets", t.count, len(t.index.buckets))
	}
	t.slots.checkInvariants(tb, found)
}

// checkIndex asserts that an index is in order, and returns its slots.
func (t *Table[K, V]) checkIndex(tb testing.TB, x *index, hash func(K) Hash) map[Slot]bool {
	tb.Helper()
	found := map[Slot]bool{}
	passed := make([]uint64, len(x.buckets))
	for n := range x.buckets {
		g := &x.buckets[n]
		for set := g.used(); set != 0; set &= set - 1 {
			place := placeOf(set)
			s := g.slots[place]
			if found[s] {
				tb.Fatalf("slot %d is in the index twice", s)
			}
			found[s] = true
			e := t.slots.at(s)
			if h := hash(e.Key); e.hash != h || g.tags>>(8*place)&0xff != tagOf(h) {
				tb.Fatalf("key %v: hash %x, in the entry %x, tags in the index %x", e.Key, h, e.hash, g.tags)
			}
			for p := x.home(e.hash); p != n; p = (p + 1) & (len(x.buckets) - 1) {
				passed[p]++
			}
		}
	}
	for n := range x.buckets {
		// Once at its end a count stays there, but no test takes away many of so many keys.
		saturated := passed[n] > maxPassed/2
		if got := x.buckets[n].passed(); got != passed[n] && !(saturated && got == maxPassed) {
			tb.Fatalf("bucket %d counts %d keys that passed it, there are %d", n, got, passed[n])
		}
	}
	return found
}

// checkInvariants asserts that each slot is either in live or free.
func (a *arena[K, V]) checkInvariants(tb testing.TB, live map[Slot]bool) {
	tb.Helper()
	empty := 0
	for n, b := range a.slabs {
		isOpen := a.open[n/64]&(1<<(n%64)) != 0
		if b.entries == nil {
			if !isOpen {
				tb.Fatalf("slab %d has no memory and is not open", n)
			}
			continue
		}
		numLive, numFree := 0, 0
		for i := range b.entries {
			s := Slot(n*slabLen + i)
			isFree := b.free[i/64]&(1<<(i%64)) != 0
			switch {
			case isFree == (live[s] || s == None):
				tb.Fatalf("slot %d: live is %t, free is %t", s, live[s], isFree)
			case !isFree:
				numLive++
			default:
				numFree++
				if any(b.entries[i]) != any(Entry[K, V]{}) {
					tb.Fatalf("free slot %d is not zero: %v", s, b.entries[i])
				}
			}
		}
		for place := len(b.entries); place < slabLen; place++ {
			if b.free[place/64]&(1<<(place%64)) != 0 {
				tb.Fatalf("place %d of slab %d is free, but there are only %d", place, n, len(b.entries))
			}
		}
		if numLive != b.live {
			tb.Fatalf("slab %d counts %d keys and has %d", n, b.live, numLive)
		}
		if numLive == 0 {
			empty++
		}
		if numFree > 0 != isOpen {
			tb.Fatalf("slab %d has %d free slots, and open is %t", n, numFree, isOpen)
		}
		if numFree > 0 && n < a.current {
			tb.Fatalf("slab %d has room and is below the current one, %d", n, a.current)
		}
	}
	for s := range live {
		if int(s)/slabLen >= len(a.slabs) {
			tb.Fatalf("slot %d is in no slab", s)
		}
	}
	for n := len(a.slabs); n < 64*len(a.open); n++ {
		if a.open[n/64]&(1<<(n%64)) != 0 {
			tb.Fatalf("slab %d is open, and there are %d", n, len(a.slabs))
		}
	}
	if empty != a.empty {
		tb.Fatalf("%d slabs are empty, %d counted", empty, a.empty)
	}
}

// used returns the set of the places that have a slot.
func (g *bucket) used() uint64 { return g.tags & highBits }
