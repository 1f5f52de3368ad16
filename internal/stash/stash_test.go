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
	if s := h.Take(1000); s != nil {
		t.Error("a slice is still there after a collection")
	}
	b := make([]int, 10)
	h.Put(b)
	if s := h.Get(10); &s[0] != &b[0] {
		t.Error("what was put here after the collection is lost")
	}
}
