package keytable

import "testing"

// checkInvariants asserts what the comment of Table promises.
func (t *Table[K, V]) checkInvariants(tb testing.TB) {
	tb.Helper()
	mask := len(t.index) - 1
	found := map[Slot]bool{}
	for pos, word := range t.index {
		if word == 0 {
			continue
		}
		s, h := Slot(word), Hash(word>>32)
		if found[s] {
			tb.Fatalf("slot %d is in the index twice", s)
		}
		found[s] = true
		e := t.slots.at(s)
		if e.tag != h || HashOf(e.Key) != h {
			tb.Fatalf("key %v: hash %x, in the entry %x, in the index %x", e.Key, HashOf(e.Key), e.tag, h)
		}
		for p := t.home(h); p != pos; p = (p + 1) & mask {
			if t.index[p] == 0 {
				tb.Fatalf("key %v: index is empty at %d, between its home %d and its place %d", e.Key, p, t.home(h), pos)
			}
		}
	}
	if len(found) != t.count {
		tb.Fatalf("%d words in the index, %d keys counted", len(found), t.count)
	}
	if t.count > 0 && t.count >= len(t.index) {
		tb.Fatalf("%d keys in an index of %d", t.count, len(t.index))
	}
	t.slots.checkInvariants(tb, found)
}

// checkInvariants asserts that each slot is either in live or in its slab's list of free ones.
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
		free := map[Slot]bool{}
		for s := b.free; s != None; s = Slot(a.at(s).tag) {
			if free[s] {
				tb.Fatalf("slot %d is free twice", s)
			}
			if int(s)/slabLen != n {
				tb.Fatalf("slot %d is in the list of slab %d", s, n)
			}
			free[s] = true
		}
		liveHere := 0
		for i := range b.entries {
			s := Slot(n*slabLen + i)
			e := b.entries[i]
			e.tag = 0
			switch {
			case s == None:
			case live[s] == free[s]:
				tb.Fatalf("slot %d: live is %t, free is %t", s, live[s], free[s])
			case live[s]:
				liveHere++
			case any(e) != any(Entry[K, V]{}):
				tb.Fatalf("free slot %d is not zero: %v", s, e)
			}
		}
		if liveHere != b.live {
			tb.Fatalf("slab %d counts %d keys and has %d", n, b.live, liveHere)
		}
		if liveHere == 0 && n != 0 {
			empty++
		}
		if len(free) > 0 != isOpen {
			tb.Fatalf("slab %d has %d free slots, and open is %t", n, len(free), isOpen)
		}
		if len(free) > 0 && n < a.current {
			tb.Fatalf("slab %d has room and is below the current one, %d", n, a.current)
		}
	}
	for s := range live {
		if int(s)/slabLen >= len(a.slabs) {
			tb.Fatalf("slot %d is in no slab", s)
		}
	}
	if empty != a.empty {
		tb.Fatalf("%d slabs are empty, %d counted", empty, a.empty)
	}
}
