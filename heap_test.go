package workqueue

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"pgregory.net/rapid"
)

// slowHeap is what dueHeap does, in the obvious way.
type slowHeap struct {
	// storm has what came due together, which goes first whatever the clock does.
	storm, entries []slowEntry
	seq            int
}

type slowEntry struct {
	key int
	due time.Time
	seq int
}

func (h *slowHeap) put(key int, due time.Time) {
	h.seq++
	if slices.ContainsFunc(h.storm, func(e slowEntry) bool { return e.key == key }) {
		return
	}
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
		switch {
		case len(h.storm) > 0:
			keys = append(keys, h.storm[0].key)
			h.storm = h.storm[1:]
		case len(h.entries) > 0 && !h.entries[0].due.After(now):
			keys = append(keys, h.entries[0].key)
			h.entries = h.entries[1:]
		default:
			return keys
		}
	}
	return keys
}

// storm does to both what popDue does if many keys wait, and most of them are due.
func storm(h *dueHeap[int], model *slowHeap, now time.Time) {
	if h.storm.Len() > 0 {
		return
	}
	h.storm = h.order.TakeMost(int64(now.Sub(h.epoch)))
	if h.storm.Len() > 0 {
		n := slices.IndexFunc(model.entries, func(e slowEntry) bool { return e.due.After(now) })
		if n < 0 {
			n = len(model.entries)
		}
		model.storm, model.entries = model.entries[:n:n], model.entries[n:]
	}
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
						// No further than that the heap can tell all times exactly.
						if to.Sub(start).Abs() < math.MaxInt64/4 {
							now = to
						}
					},
					"pop": func(t *rapid.T) {
						if keys, want := pop(t, &h, now), model.popDue(now); !slices.Equal(keys, want) {
							t.Fatalf("popDue() = %v, want %v", keys, want)
						}
					},
					"storm": func(t *rapid.T) { storm(&h, &model, now) },
					"clear": func(t *rapid.T) {
						if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
							if n, want := h.clear(), len(model.storm)+len(model.entries); n != want {
								t.Fatalf("clear() = %d, want %d", n, want)
							}
							model.storm, model.entries = nil, nil
						}
					},
					"": func(t *rapid.T) { sameHeaps(t, &h, &model, now) },
				})
			})
		})
	}
}

// pop is popDue, and asserts that the hashes are those of the keys.
func pop[T comparable](t rapid.TB, h *dueHeap[T], now time.Time) (keys []T) {
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
	if n := len(model.storm) + len(model.entries); h.len() != n || h.storm.Len() != len(model.storm) {
		t.Fatalf("len() = %d, %d of them in storm, want %d and %d", h.len(), h.storm.Len(), n, len(model.storm))
	}
	if len(model.entries) > 0 && len(model.storm) == 0 {
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
				first := len(model.storm) == 0 && (len(model.entries) == 0 || due.Before(model.entries[0].due))
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
				if arg >= 128 {
					storm(&h, &model, now)
					break
				}
				if keys, want := pop(t, &h, now), model.popDue(now); !slices.Equal(keys, want) {
					t.Fatalf("popDue() = %v, want %v", keys, want)
				}
			}
			sameHeaps(t, &h, &model, now)
		}
	})
}

// put tells when the loop must be woken: when, and only when, the earliest due time is another one.
func TestHeapTellsOfANewFirst(t *testing.T) {
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
	keys := pop(t, &h, now.Add(time.Second))
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
		keys := pop(t, &h, now.Add(n))
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

// When most of many keys are due, they come out in the order in which they would one by one, whatever is put in
// meanwhile.
func TestHeapStorm(t *testing.T) {
	const n = minStorm + 10_000
	var h dueHeap[int]
	now := time.Unix(1_000_000, 0)
	put := func(key int, delay time.Duration) { h.put(keytable.HashOf(key), key, now, delay) }
	var storm, later []slowEntry
	for key := range n {
		delay := time.Duration(rand.Int64N(n/4)) + 1 // some are equal
		if key%5 == 0 {
			delay += n
			later = append(later, slowEntry{key, now.Add(delay), key})
		} else {
			storm = append(storm, slowEntry{key, now.Add(delay), key})
		}
		put(key, delay)
	}
	byDue := func(a, b slowEntry) int { return cmp.Or(a.due.Compare(b.due), a.seq-b.seq) }
	slices.SortFunc(storm, byDue)

	now = now.Add(n / 2)
	pops := func(want []slowEntry) {
		t.Helper()
		for len(want) > 0 {
			keys := pop(t, &h, now)
			if len(keys) == 0 || len(keys) > len(want) {
				t.Fatalf("popDue() = %d keys, and there are %d", len(keys), len(want))
			}
			for i, key := range keys {
				if key != want[i].key {
					t.Fatalf("popDue() has %d, want %v", key, want[i])
				}
			}
			want = want[len(keys):]
		}
		if err := h.checkInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	half := n / 2 / maxBatch * maxBatch
	pops(storm[:half])
	if h.storm.Len() == 0 {
		t.Fatal("this is no storm")
	}
	put(storm[half].key, 1) // What is in the storm stays there,
	put(storm[n*3/5].key, 1)
	put(later[7].key, 1) // what waits comes earlier,
	later[7].due, later[7].seq = now.Add(1), n
	put(storm[0].key, 2) // and what has gone comes again.
	later = append(later, slowEntry{storm[0].key, now.Add(2), n + 1})
	pops(storm[half:])
	if len(pop(t, &h, now)) > 0 {
		t.Error("keys are early after the storm")
	}
	slices.SortFunc(later, byDue)
	now = now.Add(2 * n)
	pops(later)
	if h.len() != 0 {
		t.Errorf("len() = %d in the end", h.len())
	}
}

// A clock that jumps further in a storm than a Duration tells makes keys late at worst, and loses none.
func TestHeapStormAndRestart(t *testing.T) {
	var h dueHeap[int]
	epoch := time.Unix(0, 0)
	for key := range minStorm {
		h.put(keytable.HashOf(key), key, epoch, time.Duration(minStorm-key))
	}
	now := epoch.Add(minStorm)
	keys := pop(t, &h, now)
	if h.storm.Len() == 0 {
		t.Fatal("this is no storm")
	}
	now = epoch.Add(math.MaxInt64)
	h.put(keytable.HashOf(minStorm), minStorm, now, time.Second)
	if err := h.checkInvariants(); err != nil {
		t.Fatal(err)
	}
	for e := range h.inOrder() {
		k, want := h.snapshot(e), epoch
		if k.Key == minStorm {
			want = now
		}
		if !k.Since.Equal(want) {
			t.Fatalf("key %d waits since %v, want %v", k.Key, k.Since, want)
		}
	}
	for len(keys) < minStorm {
		more := pop(t, &h, now)
		if len(more) == 0 {
			t.Fatalf("popDue() stops after %d keys", len(keys))
		}
		keys = append(keys, more...)
	}
	if slices.Sort(keys); keys[0] != 0 || keys[minStorm-1] != minStorm-1 || h.len() != 1 {
		t.Errorf("keys %d to %d came, and %d are left", keys[0], keys[minStorm-1], h.len())
	}
}

// A storm does not end because there is another one.
func TestHeapStormInAStorm(t *testing.T) {
	var h dueHeap[int]
	now := time.Unix(0, 0)
	for key := range 2 * minStorm {
		h.put(keytable.HashOf(key), key, now, time.Duration(key%2+1))
	}
	popped := 0
	for range 3 {
		popped += len(pop(t, &h, now.Add(1)))
	}
	if h.storm.Len() == 0 || h.order.Len() < minStorm {
		t.Fatalf("%d keys in storm, %d in order", h.storm.Len(), h.order.Len())
	}
	for h.len() > 0 {
		popped += len(pop(t, &h, now.Add(2)))
	}
	if popped != 2*minStorm {
		t.Errorf("%d keys were popped, want %d", popped, 2*minStorm)
	}
}

// What is due too late to be told is not due when it is too late to tell the time.
func TestHeapNeverStorms(t *testing.T) {
	var h dueHeap[int]
	epoch := time.Unix(0, 0)
	for key := range minStorm {
		h.put(keytable.HashOf(key), key, epoch, never)
	}
	if keys := pop(t, &h, epoch.Add(never).Add(time.Hour)); len(keys) > 0 {
		t.Errorf("%d keys are due", len(keys))
	}
}

// What a storm has left is dropped like all else, and seen by Snapshot first.
func TestStormIsSeenAndDropped(t *testing.T) {
	q := &delayingType[int]{}
	now := time.Unix(0, 0)
	for key := range minStorm {
		q.waiting.put(keytable.HashOf(key), key, now, time.Duration(key+1))
	}
	q.waiting.put(keytable.HashOf(minStorm), minStorm, now, time.Hour)
	pop(t, &q.waiting, now.Add(minStorm))
	for i, k := range q.copyWaiting(minStorm) {
		want := KeySnapshot[int]{Key: maxBatch + i, Since: now, Due: now.Add(time.Duration(maxBatch + i + 1))}
		if want.Key == minStorm {
			want.Due = now.Add(time.Hour)
		}
		if k != want {
			t.Fatalf("key %d of those that wait is %v, want %v", i, k, want)
		}
	}
	if keys := q.copyWaiting(3); len(keys) != 3 {
		t.Errorf("of three keys %d are copied", len(keys))
	}
	failing := []KeySnapshot[int]{{Key: maxBatch}, {Key: minStorm}}
	for i := range failing {
		if k, waits := q.inspectWaiting(failing[i].Key); waits {
			failing[i] = k
		}
	}
	if want := []KeySnapshot[int]{{Key: maxBatch}, {Key: minStorm, Since: now, Due: now.Add(time.Hour)}}; !slices.Equal(failing, want) {
		t.Errorf("failing keys are %v, want %v", failing, want)
	}
	if n := q.waiting.clear(); n != minStorm+1-maxBatch || q.waiting.len() != 0 {
		t.Errorf("clear() = %d, and %d are left", n, q.waiting.len())
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

// When the epoch moves, a key that waits has waited since the same time as before.
func TestHeapRemembersSinceAfterRestart(t *testing.T) {
	var h dueHeap[int]
	epoch := time.Unix(0, 0)
	for key, after := range []time.Duration{0, time.Hour} {
		h.put(keytable.HashOf(key), key, epoch.Add(after), math.MaxInt64)
	}
	h.put(keytable.HashOf(2), 2, epoch.Add(math.MaxInt64), time.Second)
	for key, after := range []time.Duration{0, time.Hour, math.MaxInt64} {
		s, _ := h.keys.Find(keytable.HashOf(key), key)
		if got := h.snapshot(h.order.At(s)).Since; !got.Equal(epoch.Add(after)) {
			t.Errorf("key %d waits since %v, want %v", key, got, epoch.Add(after))
		}
	}
}

// Keys from before the epoch and after it, when the clock has gone far beyond what a Duration tells.
func TestHeapAfterRestart(t *testing.T) {
	var h dueHeap[int]
	epoch := time.Unix(0, 0)
	put := func(key int, now time.Time, d time.Duration) {
		h.put(keytable.HashOf(key), key, now, d)
	}
	put(1, epoch, time.Hour)
	put(2, epoch.Add(-3*time.Hour), time.Hour) // due two hours before the epoch
	put(3, epoch.Add(-5*time.Hour), time.Hour) // and four hours
	put(4, epoch, math.MaxInt64)
	far := epoch.Add(math.MaxInt64).Add(24 * time.Hour)
	put(5, far, time.Minute)
	if err := h.checkInvariants(); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, now := range []time.Time{far, far.Add(time.Minute)} {
		got = append(append(got, pop(t, &h, now)...), 0)
	}
	// What was due before the epoch has become equal, and comes in the order in which it was put in.
	if want := []int{2, 3, 1, 0, 5, 0}; !slices.Equal(got, want) {
		t.Errorf("keys came in the order %v, want %v; 0 is a minute", got, want)
	}
}
