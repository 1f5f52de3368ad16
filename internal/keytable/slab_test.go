package keytable

import (
	"runtime/debug"
	"slices"
	"testing"
	"unsafe"
)

// fill makes a table of the keys below n, which are in the slots from 1 on.
func fill[V any](n int) *Table[int, V] {
	var t Table[int, V]
	for key := range n {
		insert(&t, key)
	}
	return &t
}

// Slots are given out from the lowest slab that has room, however far up it is.
func TestLowestSlabComesFirst(t *testing.T) {
	const slabs = 140
	table := fill[struct{}](slabs*slabLen - 1) // the first slot is None
	var free []Slot
	for _, n := range []int{130, 100, 70, 3} {
		s := Slot(n*slabLen + 7)
		table.Delete(s)
		free = append(free, s)
	}
	for i := len(free) - 1; i >= 0; i-- {
		if s, _ := insert(table, -1-i); s != free[i] {
			t.Errorf("the next key is in slot %d, want %d", s, free[i])
		}
		table.checkInvariants(t)
	}
	if s, _ := insert(table, -9); s != slabs*slabLen {
		t.Errorf("the key for which there is no room is in slot %d", s)
	}
}

// The slabs at the end are forgotten when they run empty, all but one, and are made again.
func TestSlabsAreForgottenAndComeAgain(t *testing.T) {
	type large [512]byte // One empty slab of these is kept.
	for _, c := range []struct{ slabs, left int }{{66, 1}, {65, 63}, {66, 64}, {130, 65}} {
		table := fill[large](c.slabs*slabLen - 1)
		table.Delete(7) // room in the first slab
		for s := Slot(c.left * slabLen); s < Slot(c.slabs*slabLen); s++ {
			table.Delete(s)
		}
		table.checkInvariants(t)
		if n := table.Slabs(); n != c.left+1 {
			t.Errorf("%d slabs for the keys of %d", n, c.left)
		}
		for key := range c.slabs * slabLen {
			insert(table, key)
		}
		table.checkInvariants(t)
		if n := table.Slabs(); n != c.slabs+1 {
			t.Errorf("%d slabs, want %d", n, c.slabs+1)
		}
	}
}

// emptyKept returns the size of an entry and how many empty slabs of such entries are kept.
func emptyKept[V any]() (size, kept int) {
	const slabs = 40
	table := fill[V](slabs * slabLen)
	for s := Slot(1); s <= slabs*slabLen; s++ {
		table.Delete(s)
	}
	return int(unsafe.Sizeof(Entry[int, V]{})), table.slots.empty
}

// Of slabs that run empty as much is kept as keptBytes says, and one in any case.
func TestEmptySlabsAreKept(t *testing.T) {
	for _, entries := range []func() (size, kept int){
		emptyKept[uint32], emptyKept[[29]uint32], emptyKept[[30]uint32],
		emptyKept[[61]uint32], emptyKept[[125]uint32], emptyKept[[126]uint32],
	} {
		size, kept := entries()
		want := max(1, keptBytes/(size*slabLen))
		if kept != want {
			t.Errorf("entries of %d B: %d empty slabs are kept, want %d", size, kept, want)
		}
	}
}

// The index shrinks to a quarter when there are less keys than an eighth of its buckets, and stays where it
// is otherwise.
func TestIndexShrinks(t *testing.T) {
	const n = 100_000
	table := fill[struct{}](n)
	for s := range Slot(n) {
		buckets, index := len(table.index.buckets), &table.index.buckets[0]
		table.Delete(s + 1)
		want := buckets
		if buckets > keptBuckets && table.Len() < buckets/8 {
			want = max(keptBuckets, buckets/4)
		}
		if len(table.index.buckets) != want {
			t.Fatalf("%d buckets for %d keys, want %d", len(table.index.buckets), table.Len(), want)
		}
		if want == buckets && &table.index.buckets[0] != index {
			t.Fatalf("the index was moved at %d keys", table.Len())
		}
	}
	if len(table.index.buckets) != keptBuckets {
		t.Errorf("%d buckets are kept, want %d", len(table.index.buckets), keptBuckets)
	}
}

// A second burst takes the largest index that the last one left, up to 16 times the present one.
func TestIndexGrowsToThatOfTheLastBurst(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, c := range []struct{ burst, want int }{{2, 2}, {4, 4}, {8, 8}, {16, 16}, {32, 16}} { // in keptBuckets
		n := c.burst * keptBuckets * keysPerBucket
		table := fill[struct{}](n)
		if len(table.index.buckets) != c.burst*keptBuckets {
			t.Fatalf("%d buckets for %d keys", len(table.index.buckets), n)
		}
		for s := range Slot(n) {
			table.Delete(s + 1)
		}
		for key := range keptBuckets*keysPerBucket + 1 {
			insert(table, key)
		}
		table.checkInvariants(t)
		if got := len(table.index.buckets); got != c.want*keptBuckets {
			t.Errorf("after a burst with %d buckets, %d, want %d", c.burst*keptBuckets, got, c.want*keptBuckets)
		}
	}
}

// Values are appended under a lock, so InSteps makes room for those of a slab before. When the queues did
// not, calls waited for 280 ms while a snapshot of a million keys was made.
func TestInSteps(t *testing.T) {
	const n = 50_000
	table := fill[int](n)
	locked, room := false, 0
	lock, unlock := func() { locked, room = true, slabLen }, func() { locked = false }
	keys := InSteps(table, lock, unlock, func(keys []int, s Slot) []int {
		if !locked || cap(keys)-len(keys) < room {
			t.Errorf("slot %d: locked: %v, room for %d values, want %d", s, locked, cap(keys)-len(keys), room)
		}
		room--
		return append(keys, table.At(s).Key)
	})
	want := 0
	for key := range keys {
		if key != want || locked {
			t.Fatalf("key %d is yielded, locked: %v, want %d", key, locked, want)
		}
		want++
	}
	if end := Slot(table.Slabs() * slabLen); want != n || !table.HasMemory(end-1) || table.HasMemory(end) {
		t.Errorf("%d keys, want %d; memory for slot %d: %v, for slot %d: %v", want, n, end-1,
			table.HasMemory(end-1), end, table.HasMemory(end))
	}
	for _, some := range []int{-1, 0, 1, 700, n, n + 1} {
		want := min(max(some, 0), n)
		if got := slices.Collect(Take(some, keys)); len(got) != want || want > 0 && got[want-1] != want-1 {
			t.Errorf("the first %d keys are %d", some, len(got))
		}
	}
}
