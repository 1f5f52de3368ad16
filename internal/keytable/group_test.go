package keytable

import (
	"testing"
	"unsafe"
)

func TestGroupIsHalfACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(group{}); size != 32 {
		t.Errorf("a group takes %d B", size)
	}
}

// Every combination of two tags in neighbouring places: match must find both, whatever borrows there are.
func TestMatch(t *testing.T) {
	for a := range Hash(128) {
		for b := range Hash(128) {
			var g group
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
			if a == b && found != groupLen {
				t.Fatalf("match(%x) found %d places, want all", a, found)
			}
		}
	}
}

func TestGroupsPlaces(t *testing.T) {
	var g group
	for s := Slot(1); s <= groupLen; s++ {
		if !g.put(5, s) {
			t.Fatalf("no place for slot %d", s)
		}
	}
	if !g.remove(5, 3) || g.remove(5, 3) || g.remove(6, 4) {
		t.Errorf("remove took what was not there, or not what was")
	}
	if !g.put(7, 9) || g.slots[2] != 9 {
		t.Errorf("the free place was not found: %v", g.slots)
	}
}

// A count that has reached its end must not come down to zero while keys are in later groups.
func TestManyPass(t *testing.T) {
	var g group
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
