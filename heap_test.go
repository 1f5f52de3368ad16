package workqueue

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"pgregory.net/rapid"
)

// slowHeap is what dueHeap does, in the obvious way.
type slowHeap struct {
	entries []slowEntry
	seq     int
}

type slowEntry struct {
	key int
	due time.Duration
	seq int
}

func (h *slowHeap) put(key int, due time.Duration) {
	h.seq++
	i := slices.IndexFunc(h.entries, func(e slowEntry) bool { return e.key == key })
	switch {
	case i < 0:
		h.entries = append(h.entries, slowEntry{key, due, h.seq})
	case due < h.entries[i].due:
		h.entries[i] = slowEntry{key, due, h.seq}
	}
	slices.SortFunc(h.entries, func(a, b slowEntry) int {
		if c := cmp.Compare(a.due, b.due); c != 0 {
			return c
		}
		return a.seq - b.seq
	})
}

func (h *slowHeap) popDue(now time.Duration) (keys []int) {
	for len(keys) < maxBatch {
		if len(h.entries) == 0 || h.entries[0].due > now {
			return keys
		}
		keys = append(keys, h.entries[0].key)
		h.entries = h.entries[1:]
	}
	return keys
}

// popKeys is popDue, and asserts that the hashes are those of the keys.
func popKeys[T comparable](t rapid.TB, h *dueHeap[T], now time.Duration) (keys []T) {
	t.Helper()
	for _, k := range h.popDue(now, nil) {
		if k.Hash != keytable.HashOf(k.Key) {
			t.Fatalf("popDue() has %v with a hash of %x, want %x", k.Key, k.Hash, keytable.HashOf(k.Key))
		}
		keys = append(keys, k.Key)
	}
	return keys
}

// sameHeaps asserts that h is in order, and that what there is to see of it is the model's.
func sameHeaps(t rapid.TB, h *dueHeap[int], model *slowHeap) {
	t.Helper()
	if err := h.checkInvariants(); err != nil {
		t.Fatal(err)
	}
	if h.len() != len(model.entries) {
		t.Fatalf("len() = %d, want %d", h.len(), len(model.entries))
	}
	want := dueloop.Never
	if len(model.entries) > 0 {
		want = model.entries[0].due
	}
	if got := h.next(); got != want {
		t.Fatalf("next() = %v, want %v", got, want)
	}
}

// checkHeap makes two bytes of the script a call on a heap and on the model. What a byte says of a delay or a jump grows
// with its square, so that some are equal and some far apart.
func checkHeap(t rapid.TB, script []byte) {
	h := dueHeap[int]{seq: math.MaxUint32 - 3} // Numbers start anew, as they do every four billion puts.
	var model slowHeap
	now := time.Duration(0)
	for ; len(script) >= 2; script = script[2:] {
		what, arg := script[0], time.Duration(script[1])
		key := int(what & 0x3f)
		switch what >> 6 {
		case 0, 1:
			h.put(keytable.HashOf(key), key, now, 1+arg*arg)
			model.put(key, now+1+arg*arg)
		case 2:
			if key < 8 { // back, sometimes
				arg = -arg
			}
			now += arg * arg.Abs()
		case 3:
			if key == 0 {
				if n, want := h.clear(), len(model.entries); n != want {
					t.Fatalf("clear() = %d, want %d", n, want)
				}
				model.entries = nil
			} else if keys, want := popKeys(t, &h, now), model.popDue(now); !slices.Equal(keys, want) {
				t.Fatalf("popDue() = %v, want %v", keys, want)
			}
		}
		sameHeaps(t, &h, &model)
	}
}

func TestHeapAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkHeap(t, rapid.SliceOfN(rapid.Byte(), 100, 800).Draw(t, "script")) })
}

func FuzzHeap(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) { checkHeap(t, script[:min(len(script), 1000)]) })
}

// The keys that are due come in batches, and what they took goes with them.
func TestHeapPopsManyKeys(t *testing.T) {
	var h dueHeap[int]
	now := time.Hour
	const n = 300_000 // which is enough for a table to preload
	for key := range n {
		h.put(keytable.HashOf(key), key, now, time.Duration(n-key))
	}
	for want := n - 1; h.len() > 0; {
		keys := popKeys(t, &h, now+n)
		if len(keys) != min(maxBatch, want+1) {
			t.Fatalf("popDue() = %d keys of %d", len(keys), want+1)
		}
		for _, key := range keys {
			if key != want {
				t.Fatalf("popDue() has %d, want %d", key, want)
			}
			want--
		}
	}
	left := 0
	for s := range keytable.Slot(n) {
		if h.keys.HasMemory(s) {
			left++
		}
	}
	if left > n/10 {
		t.Errorf("memory for %d keys is left", left)
	}
}
