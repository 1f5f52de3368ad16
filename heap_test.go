package workqueue

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

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
	due time.Time
	seq int
}

func (h *slowHeap) put(key int, due time.Time) {
	h.seq++
	i := slices.IndexFunc(h.entries, func(e slowEntry) bool { return e.key == key })
	switch {
	case i < 0:
		h.entries = append(h.entries, slowEntry{key, due, h.seq})
	case due.Before(h.entries[i].due):
		h.entries[i] = slowEntry{key, due, h.seq}
	}
	slices.SortFunc(h.entries, func(a, b slowEntry) int {
		if c := a.due.Compare(b.due); c != 0 {
			return c
		}
		return a.seq - b.seq
	})
}

func (h *slowHeap) popDue(now time.Time) (keys []int) {
	for len(keys) < maxBatch {
		if len(h.entries) == 0 || h.entries[0].due.After(now) {
			return keys
		}
		keys = append(keys, h.entries[0].key)
		h.entries = h.entries[1:]
	}
	return keys
}

func TestHeapAgainstModel(t *testing.T) {
	// Few keys and times, so that many of them are equal, or many and far apart.
	for _, size := range []struct {
		keys int
		span time.Duration
		jump time.Duration
	}{
		{20, 10, 5},
		{300, time.Hour, time.Hour},
		{50, math.MaxInt64 / 8, math.MaxInt64 / 16},
	} {
		t.Run(fmt.Sprintf("keys=%d,span=%v", size.keys, size.span), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				// Numbers are about to start anew, as they do every four billion puts.
				h := dueHeap[int]{seq: math.MaxUint32 - 3}
				var model slowHeap
				start := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
				now := start
				t.Repeat(map[string]func(*rapid.T){
					"put": func(t *rapid.T) {
						key := rapid.IntRange(0, size.keys-1).Draw(t, "key")
						d := time.Duration(rapid.Int64Range(1, int64(size.span)).Draw(t, "delay"))
						h.put(keytable.HashOf(key), key, now, d)
						model.put(key, now.Add(d))
					},
					"time": func(t *rapid.T) {
						to := now.Add(time.Duration(rapid.Int64Range(-int64(size.jump), int64(size.jump)).Draw(t, "jump")))
						// The heap expresses times exactly only up to here.
						if to.Sub(start).Abs() < math.MaxInt64/4 {
							now = to
						}
					},
					"pop": func(t *rapid.T) {
						if keys, want := popKeys(t, &h, now), model.popDue(now); !slices.Equal(keys, want) {
							t.Fatalf("popDue() = %v, want %v", keys, want)
						}
					},
					"clear": func(t *rapid.T) {
						if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
							if n, want := h.clear(), len(model.entries); n != want {
								t.Fatalf("clear() = %d, want %d", n, want)
							}
							model.entries = nil
						}
					},
					"": func(t *rapid.T) { sameHeaps(t, &h, &model, now) },
				})
			})
		})
	}
}

// popKeys is popDue, and asserts that the hashes are those of the keys.
func popKeys[T comparable](t rapid.TB, h *dueHeap[T], now time.Time) (keys []T) {
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
func sameHeaps(t rapid.TB, h *dueHeap[int], model *slowHeap, now time.Time) {
	t.Helper()
	if err := h.checkInvariants(); err != nil {
		t.Fatal(err)
	}
	if h.len() != len(model.entries) {
		t.Fatalf("len() = %d, want %d", h.len(), len(model.entries))
	}
	if len(model.entries) > 0 {
		want := model.entries[0].due.Sub(now)
		if got := h.untilNext(now); got != want {
			t.Fatalf("untilNext() = %v, want %v", got, want)
		}
	}
}

// FuzzHeap makes two bytes of the script a call. What a byte says of a delay or a jump grows with its square,
// so that some are equal and some far apart.
func FuzzHeap(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) {
		h := dueHeap[int]{seq: math.MaxUint32 - 3}
		var model slowHeap
		now := time.Unix(0, 0)
		for script = script[:min(len(script), 1000)]; len(script) >= 2; script = script[2:] {
			what, arg := script[0], time.Duration(script[1])
			key := int(what & 0x3f)
			switch what >> 6 {
			case 0, 1:
				due := now.Add(1 + arg*arg)
				first := len(model.entries) == 0 || due.Before(model.entries[0].due)
				if changed := h.put(keytable.HashOf(key), key, now, 1+arg*arg); changed != first {
					t.Fatalf("put(%d) at %d for %d = %v, want %v", key, now.UnixNano(), due.UnixNano(), changed, first)
				}
				model.put(key, due)
			case 2:
				if key < 8 { // back, sometimes
					arg = -arg
				}
				now = now.Add(arg * arg.Abs())
			case 3:
				if keys, want := popKeys(t, &h, now), model.popDue(now); !slices.Equal(keys, want) {
					t.Fatalf("popDue() = %v, want %v", keys, want)
				}
			}
			sameHeaps(t, &h, &model, now)
		}
	})
}

// put reports a change of the earliest due time, and nothing else, because the loop must be woken then.
func TestHeapReportsANewFirst(t *testing.T) {
	var h dueHeap[string]
	now := time.Now()
	for _, step := range []struct {
		key   string
		delay time.Duration
		want  bool
	}{
		{"b", 10, true}, {"c", 20, false}, {"d", 10, false}, {"a", 5, true}, {"c", 30, false},
		{"a", 5, false}, {"a", 4, true}, {"c", 15, false}, {"c", 1, true},
	} {
		if got := h.put(keytable.HashOf(step.key), step.key, now, step.delay); got != step.want {
			t.Errorf("put(%s, %d) = %v, want %v", step.key, step.delay, got, step.want)
		}
	}
}

// The numbers that keep equals in order start anew some day.
func TestHeapOrderWhenNumbersStartAnew(t *testing.T) {
	h := dueHeap[int]{seq: math.MaxUint32 - 9}
	now := time.Now()
	for key := range 20 {
		h.put(keytable.HashOf(key), key, now, time.Second)
		if err := h.checkInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	keys := popKeys(t, &h, now.Add(time.Second))
	if len(keys) != 20 || !slices.IsSorted(keys) {
		t.Fatalf("popDue() = %v", keys)
	}
}

// The keys that are due come in batches, and what they took goes with them.
func TestHeapPopsManyKeys(t *testing.T) {
	var h dueHeap[int]
	now := time.Now()
	const n = 300_000 // which is enough for a table to preload
	for key := range n {
		h.put(keytable.HashOf(key), key, now, time.Duration(n-key))
	}
	for want := n - 1; h.len() > 0; {
		keys := popKeys(t, &h, now.Add(n))
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

func TestAddSaturated(t *testing.T) {
	const least, most = math.MinInt64, math.MaxInt64
	for _, c := range []struct{ a, b, want time.Duration }{
		{0, 0, 0}, {1, 2, 3}, {-1, -2, -3}, {5, -7, -2}, {-5, 7, 2},
		{most, 0, most}, {0, most, most}, {most, 1, most}, {1, most, most}, {most, most, most}, {most, -1, most - 1},
		{1 << 62, 1 << 62, most}, {1 << 62, 1<<62 - 1, most},
		{least, 0, least}, {0, least, least}, {least, -1, least}, {-1, least, least}, {least, least, least},
		{least, 1, least + 1}, {-1 << 62, -1 << 62, least}, {least, most, -1}, {most, least, -1},
	} {
		if got := addSaturated(c.a, c.b); got != c.want {
			t.Errorf("addSaturated(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// Times that are too far apart for a Duration make keys late at worst, and none early.
func TestHeapSaturates(t *testing.T) {
	epoch := time.Unix(0, 0)
	var h dueHeap[int]
	put := func(key int, now time.Time, d time.Duration) { h.put(keytable.HashOf(key), key, now, d) }
	put(1, epoch, time.Hour)
	put(2, epoch.Add(-3*time.Hour), time.Hour) // Due two hours before the epoch.
	put(3, epoch.Add(math.MaxInt64).Add(time.Hour), time.Minute)
	put(4, epoch.Add(math.MinInt64).Add(-time.Hour), time.Minute)
	put(5, epoch, never)
	if err := h.checkInvariants(); err != nil {
		t.Fatal(err)
	}
	if keys := popKeys(t, &h, epoch.Add(math.MinInt64)); len(keys) > 0 {
		t.Errorf("%v are early", keys)
	}
	if keys, want := popKeys(t, &h, epoch.Add(math.MaxInt64).Add(2*time.Hour)), []int{4, 2, 1}; !slices.Equal(keys, want) {
		t.Errorf("popDue() = %v, want %v", keys, want)
	}
	if d := h.untilNext(epoch); d != never {
		t.Errorf("untilNext() = %v of keys that never come", d)
	}
	if n := h.clear(); n != 2 {
		t.Errorf("%d keys are left, want 2", n)
	}
}
