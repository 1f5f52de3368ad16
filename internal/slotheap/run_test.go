package slotheap

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"pgregory.net/rapid"
)

// checkInvariants returns an error if what the comment of Run promises does not hold.
func (r *Run[T]) checkInvariants() error {
	for i := r.next + 1; i < r.sorted; i++ {
		if r.entries[i].before(r.entries[i-1]) {
			return fmt.Errorf("entry %d, %v, is before %v", i, r.entries[i], r.entries[i-1])
		}
	}
	end := len(r.entries)
	for _, bound := range append(slices.Clone(r.bounds), r.sorted) {
		if bound > end || bound < r.sorted {
			return fmt.Errorf("bounds %v, sorted %d, of %d", r.bounds, r.sorted, len(r.entries))
		}
		if bound > r.next && bound < end {
			last := slices.MaxFunc(r.entries[r.next:bound], Entry[T].compare)
			for i := bound; i < end; i++ {
				if r.entries[i].before(last) {
					return fmt.Errorf("entry %d, %v, is before %v, which is before %d", i, r.entries[i], last, bound)
				}
			}
		}
		end = bound
	}
	return nil
}

func TestTakeMostAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[uint32]
		want := map[keytable.Slot]Entry[uint32]{}
		span := rapid.SampledFrom([]int64{1, 10, math.MaxInt64}).Draw(t, "span")
		// Ties are about to wrap around, and slots come in no order.
		tie := uint32(math.MaxUint32 - 50)
		for _, s := range rapid.Permutation(slotsTo(rapid.IntRange(0, 200).Draw(t, "entries"))).Draw(t, "slots") {
			e := Entry[uint32]{Rank: rapid.Int64Range(-span, span).Draw(t, "rank"), Tie: tie, Slot: s}
			h.Push(e)
			want[s] = e
			tie++
		}
		rank := rapid.Int64Range(-span, span).Draw(t, "up to")
		r := h.TakeMost(rank)
		var least []Entry[uint32]
		for s, e := range want {
			if r.Len() > 0 && e.Rank <= rank {
				least = append(least, e)
				delete(want, s)
				if h.Has(s) {
					t.Fatalf("slot %d was taken out and is there", s)
				}
			}
		}
		sameEntries(t, &h, want)
		slices.SortFunc(least, order)
		for len(least) > 0 {
			if err := r.checkInvariants(); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 9).Draw(t, "look") == 0 {
				if got := slices.Collect(r.InOrder()); !slices.Equal(got, least) {
					t.Fatalf("in order: %v, want %v", got, least)
				}
			}
			if e := r.Pop(); e != least[0] {
				t.Fatalf("Pop() = %v, want %v", e, least[0])
			}
			h.Push(least[0]) // Its slot may be in the heap again.
			want[least[0].Slot] = least[0]
			least = least[1:]
			if r.Len() != len(least) {
				t.Fatalf("Len() = %d, want %d", r.Len(), len(least))
			}
		}
		if r.entries != nil {
			t.Fatal("an empty run keeps memory")
		}
		sameEntries(t, &h, want)
	})
}

func slotsTo(n int) []keytable.Slot {
	slots := make([]keytable.Slot, n)
	for i := range slots {
		slots[i] = keytable.Slot(i + 1)
	}
	return slots
}

// TakeMost takes out what it is asked for if that is more than half of the heap, and nothing otherwise.
func TestTakeMostOrNothing(t *testing.T) {
	const n = 100_000
	for _, c := range []struct{ upTo, want int }{{0, 0}, {n / 4, 0}, {n / 2, 0}, {9 * n / 16, 9 * n / 16}, {n, n}} {
		var h Heap[uint32]
		for i := range n { // in order, so that the guess is exact
			h.Push(Entry[uint32]{Rank: int64(i + 1), Slot: keytable.Slot(i + 1)})
		}
		room := h.room()
		r := h.TakeMost(int64(c.upTo))
		if r.Len() != c.want || h.Len() != n-c.want {
			t.Errorf("TakeMost(%d) took %d, and %d are left", c.upTo, r.Len(), h.Len())
		}
		if families := h.Len()/arity + 1; h.room() > families+2*chunkLen && c.want > 0 {
			t.Errorf("TakeMost(%d) left room for %d families of %d, where %d are used", c.upTo, h.room(), room, families)
		}
		if err := h.checkInvariants(); err != nil {
			t.Error(err)
		}
	}
}

// The first entry of a run is there before the others are sorted, whatever order they were in.
func TestRunSortsOnlyWhatIsRead(t *testing.T) {
	const n = 100_000
	for _, by := range []int64{1, n - 1, 7919} { // as they are, turned round, mixed
		entries := make([]Entry[uint32], n)
		for i := range entries {
			entries[i].Rank = int64(i) * by % n
		}
		r := Run[uint32]{entries: entries}
		if e := r.Pop(); e.Rank != 0 {
			t.Fatalf("Pop() = %v", e)
		}
		if r.sorted > sortAtOnce {
			t.Errorf("%d are sorted after one Pop", r.sorted)
		}
		if len(r.bounds) > 100 {
			t.Errorf("%d bounds for %d entries", len(r.bounds), n)
		}
		if err := r.checkInvariants(); err != nil {
			t.Error(err)
		}
	}
}

// A branch and no branch must agree on what is before what.
func TestIsBefore(t *testing.T) {
	ranks := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	ties := []uint32{0, 1, 1 << 30, math.MaxInt32, 1 << 31, 1<<31 + 1, math.MaxUint32}
	for _, rank := range ranks {
		for _, rank2 := range ranks {
			for _, tie := range ties {
				for _, tie2 := range ties {
					agree(t, Entry[uint32]{Rank: rank, Tie: tie}, Entry[uint32]{Rank: rank2, Tie: tie2})
				}
			}
			for _, tie := range ranks {
				for _, tie2 := range ranks {
					agree(t, Entry[int64]{Rank: rank, Tie: tie}, Entry[int64]{Rank: rank2, Tie: tie2})
				}
			}
		}
	}
}

func agree[T uint32 | int64](t *testing.T, e, f Entry[T]) {
	t.Helper()
	if got, want := e.isBefore(f) == 1, e.before(f); got != want {
		t.Errorf("%v before %v: %v, want %v", e, f, got, want)
	}
}
