package stash

import (
	"runtime"
	"testing"
)

func TestStash(t *testing.T) {
	var h Stash[int]
	if s := h.Get(3); len(s) != 3 {
		t.Errorf("from an empty stash: %d elements", len(s))
	}
	a, b := make([]int, 3), make([]int, 5)
	a[0], b[0] = 7, 8
	h.Put(a)
	h.Put(b)
	if s := h.Get(4); len(s) != 4 || s[0] != 0 {
		t.Errorf("Get(4) = %v", s)
	}
	if s := h.Get(3); &s[0] != &a[0] {
		t.Errorf("Get(3) made a new slice")
	}
	if s := h.Get(3); &s[0] == &a[0] {
		t.Errorf("Get(3) returned the same slice twice")
	}
	if s := h.Get(5); &s[0] != &b[0] {
		t.Errorf("Get(5) made a new slice")
	}
}

func TestCollectorTakesWhatIsHeld(t *testing.T) {
	var h Stash[int]
	for range 100 {
		h.Put(make([]int, 1000))
	}
	runtime.GC()
	for i, s := range h.held {
		if s.Value() != nil {
			t.Fatalf("slice %d is still there after a collection", i)
		}
	}
	h.Put(make([]int, 10))
	if s := h.Get(1000); s == nil || len(h.held) != 1 {
		t.Errorf("Get left %d slices in the stash, want the one of another length", len(h.held))
	}
}

func TestStashIsBounded(t *testing.T) {
	var h Stash[byte]
	keep := make([][]byte, 0, 2*maxHeld)
	for range 2 * maxHeld {
		s := make([]byte, 1)
		keep = append(keep, s)
		h.Put(s)
	}
	if len(h.held) > maxHeld {
		t.Errorf("%d slices are held", len(h.held))
	}
	runtime.KeepAlive(keep)
}
