package keytable

import (
	"math"
	"testing"
	"unsafe"
)

func TestBucketIsHalfACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(bucket{}); size != 32 {
		t.Errorf("a bucket takes %d B", size)
	}
}

// Every combination of two tags in neighbouring places: match must find both, with and without a borrow.
func TestMatch(t *testing.T) {
	for a := range Hash(128) {
		for b := range Hash(128) {
			var g bucket
			for _, h := range []Hash{a, b, a, b, a, b} {
				g.put(h, Slot(h)+1)
			}
			if g.put(a, 1) {
				t.Fatalf("a seventh key has a place")
			}
			found := 0
			for set := g.match(a); set != 0; set &= set - 1 {
				if g.slots[placeOf(set)] == Slot(a)+1 {
					found++
				}
			}
			if want := 3; a != b && found != want {
				t.Fatalf("match(%x) beside %x found %d places, want %d", a, b, found, want)
			}
			if a == b && found != bucketLen {
				t.Fatalf("match(%x) found %d places, want all", a, found)
			}
		}
	}
}

// A count that has reached its end must not come down to zero while keys are in later buckets.
func TestManyPass(t *testing.T) {
	var g bucket
	for range maxPassed + 10 {
		g.pass(1)
	}
	for range maxPassed {
		g.pass(-1)
	}
	if g.passed() != maxPassed || g.used() != 0 {
		t.Errorf("passed = %d, places in use %x", g.passed(), g.used())
	}
}

// Each bucket may have been full, one after the other, and have let keys pass that are still there. A look-up
// of another key must end nevertheless. (It went round forever: then this test times out.)
func TestEveryBucketWasPassed(t *testing.T) {
	const second = Hash(1) << 31 // leads to the second of two buckets
	var table Table[int, struct{}]
	hash := func(key int) Hash { return Hash(key/10) * second }
	var first []Slot
	for key := range bucketLen + 1 {
		s, _, _ := table.FindOrInsert(hash(key), key)
		first = append(first, s)
	}
	for _, s := range first[:bucketLen] {
		table.Delete(s)
	}
	for key := 10; key < 10+bucketLen; key++ {
		table.FindOrInsert(hash(key), key)
	}
	table.checkHashed(t, hash)
	if len(table.index.buckets) != 2 || table.index.buckets[0].passed() == 0 ||
		table.index.buckets[1].passed() == 0 {
		t.Fatalf("of %d buckets, some were not passed", len(table.index.buckets))
	}
	for _, key := range []int{9, 19} {
		if s, _ := table.Find(hash(key), key); s != None {
			t.Errorf("found key %d, which is not there, at %d", key, s)
		}
		if s, _, inserted := table.FindOrInsert(hash(key), key); !inserted {
			t.Errorf("key %d was not inserted, but found at %d", key, s)
		}
	}
	for _, key := range []int{bucketLen, 10, 9 + bucketLen, 9, 19} {
		if s, _ := table.Find(hash(key), key); s == None {
			t.Errorf("key %d is lost", key)
		}
	}
}

// Colliding hashes overfill a bucket and the next ones, also around the end of the index.
func TestCollisions(t *testing.T) {
	for _, h := range []Hash{0, math.MaxUint32, math.MaxUint32 - 5, 1 << 31} {
		var table Table[int, struct{}]
		// Three keys share each hash, and the hashes share few homes.
		hash := func(key int) Hash { return h - Hash(key/3) }
		for key := range 40 {
			table.FindOrInsert(hash(key), key)
			table.checkHashed(t, hash)
		}
		for key := 0; key < 40; key += 2 {
			s, _ := table.Find(hash(key), key)
			table.Delete(s)
			table.checkHashed(t, hash)
		}
		for key := range 40 {
			s, e := table.Find(hash(key), key)
			if there := key%2 == 1; (s != None) != there || there && e.Key != key {
				t.Errorf("hash %x: key %d: slot %d", h, key, s)
			}
		}
	}
}
