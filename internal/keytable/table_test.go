package keytable

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"unsafe"
)

func insert[K comparable, V any](t *Table[K, V], key K) (Slot, bool) {
	s, _, inserted := t.FindOrInsert(HashOf(key), key)
	return s, inserted
}

func find[K comparable, V any](t *Table[K, V], key K) Slot {
	s, _ := t.Find(HashOf(key), key)
	return s
}

// run makes a table of what data says, beside a map of the same, and compares them: each byte inserts
// or deletes the key that it names, or a run of keys.
func run(tb testing.TB, data []byte) {
	var table Table[int, int]
	model := map[int]Slot{}
	for i, b := range data {
		key, op := int(b&0x3f), b>>6
		switch op {
		case 0, 1:
			s, inserted := insert(&table, key)
			if old, ok := model[key]; ok == inserted || ok && old != s {
				tb.Fatalf("step %d: insert %d: slot %d, new %t; model: slot %d, there %t", i, key, s, inserted, old, ok)
			}
			if inserted && table.At(s).Value != 0 {
				tb.Fatalf("step %d: insert %d: value %d", i, key, table.At(s).Value)
			}
			table.At(s).Value = ^key
			model[key] = s
		case 2:
			if s := find(&table, key); s != None {
				table.Delete(s)
				delete(model, key)
			}
		case 3:
			// A burst, so that slabs come and go.
			for k := range (key%4 + 1) * 300 {
				k = 1000 + key/4*10_000 + k
				s, inserted := insert(&table, k)
				switch {
				case inserted:
					model[k] = s
				case key%3 != 0:
					table.Delete(s)
					delete(model, k)
				}
			}
		}
		if len(data) < 30 || i%64 == 0 {
			table.checkInvariants(tb)
		}
	}
	table.checkInvariants(tb)
	if table.Len() != len(model) {
		tb.Fatalf("%d keys, want %d", table.Len(), len(model))
	}
	for key, want := range model {
		if s := find(&table, key); s != want || table.At(s).Key != key || !table.HasMemory(s) {
			tb.Fatalf("key %d is at %d, want %d, with memory", key, s, want)
		}
	}
	for key := range 64 {
		if _, ok := model[key]; !ok && find(&table, key) != None {
			tb.Fatalf("key %d is there", key)
		}
	}
	for key := range model {
		table.Delete(find(&table, key))
	}
	table.checkInvariants(tb)
}

func TestTableIsAMap(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		data := make([]byte, 1+rng.IntN(300))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		run(t, data)
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0x81, 0xc1, 0xc5, 0xc1, 0x82})
	f.Fuzz(func(t *testing.T, data []byte) {
		run(t, data[:min(len(data), 1000)]) // more only repeats what is there
	})
}

// A straggler in a late slab must not keep the slabs before it, and the slots that are given out next
// must be the low ones again.
func TestBurstIsGivenBack(t *testing.T) {
	const n = 100_000
	var table Table[int, [4]uint64]
	for key := range n {
		insert(&table, key)
	}
	for key := range n - 1 {
		table.Delete(find(&table, key))
	}
	table.checkInvariants(t)
	kept := len(table.index.buckets) * int(unsafe.Sizeof(bucket{}))
	for _, b := range table.slots.slabs {
		kept += len(b.entries) * 56
	}
	if kept > 512<<10 {
		t.Errorf("%d KiB are kept for one key", kept>>10)
	}
	for key := n; key < n+100; key++ {
		if s, _ := insert(&table, key); int(s) >= slabLen {
			t.Fatalf("key %d got slot %d", key, s)
		}
	}
	table.Delete(find(&table, n-1))
	table.checkInvariants(t)
	if n := len(table.slots.slabs); n > 20 {
		t.Errorf("%d slabs are kept for %d keys", n, table.Len())
	}
}

func TestColumn(t *testing.T) {
	var column Column[int]
	for _, s := range []Slot{1, 7, 8, 100, slabLen - 1, slabLen, 5 * slabLen} {
		if v := column.At(s); *v != 0 {
			t.Errorf("slot %d: %d before it was set", s, *v)
		}
		*column.At(s) = int(s)
	}
	for _, s := range []Slot{1, 7, 8, 100, slabLen - 1, slabLen, 5 * slabLen} {
		if v := column.At(s); *v != int(s) || column.Existing(s) != v {
			t.Errorf("slot %d: %d, or %d", s, *v, *column.Existing(s))
		}
	}
	column.Release(slabLen + 3)
	if column.slabs[1] != nil || *column.At(5 * slabLen) != 5*slabLen {
		t.Errorf("after Release of slab 1: %v, and %d in slab 5", column.slabs[1], *column.At(5 * slabLen))
	}
	column.Release(5 * slabLen)
	column.Release(100 * slabLen)
	column.Release(slabLen) // where the slabs end
	if len(column.slabs) != 1 || *column.At(100) != 100 {
		t.Errorf("after Release of slab 5: %d slabs, and %d in slab 0", len(column.slabs), *column.At(100))
	}
	column.Release(1)
	if len(column.slabs) != 0 || *column.At(100) != 0 {
		t.Errorf("after Release of all: %d slabs, %d", len(column.slabs), *column.At(100))
	}
}

// Only the first slab starts small, and it grows to what is needed.
func TestColumnsMemory(t *testing.T) {
	var column Column[int]
	for _, c := range []struct {
		s    Slot
		want int
	}{
		{1, firstSlabLen}, {firstSlabLen - 1, firstSlabLen}, {firstSlabLen, 2 * firstSlabLen}, {100, 128},
		{128, 256},
		{slabLen - 1, slabLen}, {slabLen, slabLen}, {3*slabLen + 1, slabLen},
	} {
		column.At(c.s)
		if n := len(column.slabs[c.s/slabLen]); n != c.want {
			t.Errorf("slot %d: a slab of %d, want %d", c.s, n, c.want)
		}
	}
}

// The memory that a burst gave back serves the next one, in other slots as well.
func TestColumnsMemoryIsReused(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var column Column[int]
	given := column.At(3 * slabLen)
	column.Release(3 * slabLen)
	column.Release(3 * slabLen) // which must not give it twice
	if got := column.At(7 * slabLen); got != given {
		t.Errorf("slab 7 has new memory")
	}
	if got := column.At(9 * slabLen); got == given || *got != 0 {
		t.Errorf("slab 9 has the memory of slab 7, or not zero in new memory: %d", *got)
	}
}

// Of an array that becomes shorter, a slab is given back when the one before it is half empty.
func TestColumnsTrim(t *testing.T) {
	const slabs = 4
	var column Column[int]
	for n := range Slot(slabs) {
		column.At(n * slabLen)
	}
	for end := Slot(slabs * slabLen); end > 0; {
		end--
		column.Trim(end)
		if want := min(slabs, int(end+slabLen+slabLen/2)/slabLen); len(column.slabs) != want {
			t.Fatalf("%d slabs for %d values, want %d", len(column.slabs), end, want)
		}
	}
}

// Nothing is to be seen of preloading but that it does not harm, in tables small and large.
func TestPreload(t *testing.T) {
	var table Table[int, struct{}]
	var slots []Slot
	for key := range 2 * largeIndex * keysPerBucket {
		if key%largeIndex == 0 {
			if key == 0 {
				slots = nil
			}
			table.Preload(append(slots[max(0, len(slots)-5):], None, None))
		}
		s, _ := insert(&table, key)
		slots = append(slots, s)
	}
	if len(table.index.buckets) < largeIndex {
		t.Fatalf("%d keys are not many", table.Len())
	}
	for len(slots) > 0 {
		n := min(PreloadLen, len(slots))
		table.Preload(slots[:n])
		for _, s := range slots[:n] {
			table.Delete(s)
		}
		slots = slots[n:]
	}
	table.checkInvariants(t)
	if table.Len() != 0 {
		t.Errorf("%d keys are left", table.Len())
	}
}

func BenchmarkChurn(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("namespace-%d/name-%d", i%100, i)
		}
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var table Table[string, uint64]
			for b.Loop() {
				for _, key := range keys {
					insert(&table, key)
				}
				for _, key := range keys {
					table.Delete(find(&table, key))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
		})
	}
}

// A key that comes and goes where the slabs before it are full must not take a new slab each time, also
// if its slab alone is more than what is kept of several.
func TestNoAllocationAtTheEdgeOfASlab(t *testing.T) {
	var table Table[[40]uint64, int]
	key := func(i int) [40]uint64 { return [40]uint64{uint64(i)} }
	for i := range slabLen - 1 { // the first slot is None
		insert(&table, key(i))
	}
	allocs := testing.AllocsPerRun(100, func() {
		insert(&table, key(slabLen))
		table.Delete(find(&table, key(slabLen)))
	})
	if allocs != 0 {
		t.Errorf("%v allocations a round", allocs)
	}
}
