package lastkeys_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker/internal/lastkeys"
)

// TestAgainstSlice compares random calls with the obvious slow list.
func TestAgainstSlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := lastkeys.List[int, int]{Max: 300}
	var model []int // the values, key and value being the same, the last one first
	for step := range 20_000 {
		key := rng.IntN(1000)
		if rng.IntN(10) < 3 || slices.Contains(model, key) {
			l.Remove(key)
			model = slices.DeleteFunc(model, func(k int) bool { return k == key })
		} else {
			l.Add(key, key)
			if model = slices.Insert(model, 0, key); len(model) > l.Max {
				model = model[:l.Max]
			}
		}
		if found := l.Find(key); (found != nil) != slices.Contains(model, key) || found != nil && *found != key {
			t.Fatalf("step %d: %v", step, found)
		}
		if l.Len() != len(model) {
			t.Fatalf("step %d: %d keys, want %d", step, l.Len(), len(model))
		}
		if step%100 == 0 && !slices.Equal(slices.Collect(l.Newest()), model) {
			t.Fatalf("step %d: %v, want %v", step, slices.Collect(l.Newest()), model)
		}
	}
}

// Nothing is left of many keys: neither of the table nor of the links beside it.
func TestMemory(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	const keys = 200_000
	l := &lastkeys.List[int, int]{Max: keys}
	before := testkit.Heap()
	for key := range keys {
		l.Add(key, key)
	}
	for key := range keys {
		l.Remove(key)
	}
	if kept := testkit.Heap() - before; kept > 512<<10 {
		t.Errorf("%d KiB kept", kept>>10)
	}
	l.Add(1, 1)
}
