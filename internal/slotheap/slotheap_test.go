package slotheap

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"pgregory.net/rapid"
)

// checkInvariants returns an error if what the comment of Heap promises does not hold.
func (h *Heap) checkInvariants() error {
	for p := root; p < h.end(); p++ {
		e := *h.at(p)
		if p != root && e.before(*h.at(p.parent())) {
			return fmt.Errorf("entry %d, %v, is before its parent %v", p, e, *h.at(p.parent()))
		}
		if believed := h.position(e.Slot); believed != p {
			return fmt.Errorf("entry %d, %v, is believed to be at %d", p, e, believed)
		}
	}
	return nil
}

// sameEntries asserts that h is in order and has the entries of want.
func sameEntries(t rapid.TB, h *Heap, want map[keytable.Slot]Entry) {
	t.Helper()
	if err := h.checkInvariants(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range h.InOrder() {
		n++
	}
	if h.Len() != len(want) || n != len(want) {
		t.Fatalf("Len() = %d, %d InOrder, want %d", h.Len(), n, len(want))
	}
	for s, e := range want {
		if got := h.At(s); got != e {
			t.Fatalf("At(%d) = %v, want %v", s, got, e)
		}
	}
	for s := keytable.Slot(0); s < 70; s++ {
		if _, there := want[s]; h.Has(s) != there {
			t.Fatalf("Has(%d) = %v", s, h.Has(s))
		}
	}
	if len(want) == 0 {
		return
	}
	least := slices.MinFunc(slices.Collect(maps.Values(want)), order)
	if got := h.First(); order(got, least) != 0 || want[got.Slot] != got {
		t.Fatalf("First() = %v, want %v", got, least)
	}
}

func order(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), int(int32(a.Tie-b.Tie)))
}

// checkHeap makes two bytes of the script a call.
func checkHeap(t rapid.TB, script []byte) {
	var h Heap
	want := map[keytable.Slot]Entry{}
	for ; len(script) >= 2; script = script[2:] {
		what, arg := script[0], script[1]
		e := Entry{Rank: int64(arg >> 2), Tie: uint32(arg & 3), Slot: keytable.Slot(what&0x3f) + 1}
		_, there := want[e.Slot]
		switch {
		case what>>6 == 3 && there:
			h.Remove(e.Slot)
			delete(want, e.Slot)
		case there:
			h.Replace(e)
			want[e.Slot] = e
		case what>>6 < 3:
			h.Push(e)
			want[e.Slot] = e
		}
		sameEntries(t, &h, want)
	}
	var inOrder []Entry
	for e := range h.InOrder() {
		inOrder = append(inOrder, e)
	}
	if len(inOrder) != len(want) || !slices.IsSortedFunc(inOrder, order) {
		t.Fatalf("in order: %v", inOrder)
	}
	for _, e := range inOrder {
		if want[e.Slot] != e {
			t.Fatalf("in order there is %v, want %v", e, want[e.Slot])
		}
		delete(want, e.Slot)
	}
}

func TestAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkHeap(t, rapid.SliceOfN(rapid.Byte(), 100, 400).Draw(t, "script")) })
}

func FuzzHeap(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) { checkHeap(t, script[:min(len(script), 1000)]) })
}

// The largest differences of ranks do not overflow, and ties are compared modulo 2^32.
func TestBefore(t *testing.T) {
	ranks := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	ties := []uint32{math.MaxUint32 - 1, math.MaxUint32, 0, 1, 1<<31 - 3}
	for i, rank := range ranks {
		for j, tie := range ties {
			for i2, rank2 := range ranks {
				for j2, tie2 := range ties {
					e, f := Entry{Rank: rank, Tie: tie}, Entry{Rank: rank2, Tie: tie2}
					want := i < i2 || i == i2 && j < j2
					if got := e.before(f); got != want {
						t.Errorf("%v before %v: %v, want %v", e, f, got, want)
					}
				}
			}
		}
	}
}

// The memory of a burst is given back.
func TestMemoryIsGivenBack(t *testing.T) {
	var h Heap
	const n = 100_000
	for s := range keytable.Slot(n) {
		h.Push(Entry{Rank: int64(s * 7919 % n), Slot: s + 1})
	}
	last := h.end() - 1
	for rank := range int64(n) {
		if e := h.Pop(); e.Rank != rank {
			t.Fatalf("Pop() = %v, want rank %d", e, rank)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("the memory is still there")
		}
	}()
	h.at(last)
}
