package keytable

import (
	"math/rand/v2"
	"runtime/debug"
	"testing"
)

// Everything that can be done with a table is done while its keys move, to a larger index or a smaller one.
func TestWhileKeysMove(t *testing.T) {
	const buckets = 4 * keptBuckets
	for name, start := range map[string]func() *Table[int, int]{
		"growing": func() *Table[int, int] {
			table := new(Table[int, int])
			for key := range buckets*keysPerBucket + 1 {
				insert(table, key)
			}
			return table
		},
		"shrinking": func() *Table[int, int] {
			table := new(Table[int, int])
			for key := range buckets * keysPerBucket {
				insert(table, key)
			}
			rng := rand.New(rand.NewPCG(3, 4))
			for _, key := range rng.Perm(buckets * keysPerBucket)[buckets/8-1:] {
				table.Delete(find(table, key))
			}
			return table
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				table := start()
				if !table.isMoving() {
					t.Fatalf("%d keys in %d buckets are not moving", table.Len(), len(table.index.buckets))
				}
				steps := disturb(t, table, rand.New(rand.NewPCG(seed, 1)))
				if most := callsPerMove * buckets * keysPerBucket / slabLen; steps < 10 || steps > most {
					t.Errorf("keys moved in %d steps, want at most %d", steps, most)
				}
			}
		})
	}
}

// disturb inserts, deletes and looks for keys until none is moving, and returns how many steps that took.
func disturb(t *testing.T, table *Table[int, int], rng *rand.Rand) (steps int) {
	t.Helper()
	there := map[int]bool{}
	for _, e := range table.all() {
		there[e.Key] = true
		e.Value = e.Key
	}
	last := 0
	for ; table.isMoving(); steps++ {
		key := rng.IntN(5 * keptBuckets * keysPerBucket)
		if rng.IntN(4) == 0 {
			key = last // what was just inserted, deleted or looked for
		}
		last = key
		switch s, e := table.Find(HashOf(key), key); {
		case (s != None) != there[key] || s != None && (e.Key != key || e.Value != key):
			t.Fatalf("key %d, there: %v; found at %d: %v", key, there[key], s, e)
		case s == None || rng.IntN(3) == 0:
			_, e, inserted := table.FindOrInsert(HashOf(key), key)
			if inserted == there[key] || !inserted && e.Value != key {
				t.Fatalf("key %d, there: %v, inserted: %v, value %d", key, there[key], inserted, e.Value)
			}
			e.Value = key
			there[key] = true
		default:
			table.Delete(s)
			delete(there, key)
		}
		if steps%8 == 0 {
			table.checkInvariants(t)
		}
	}
	table.checkInvariants(t)
	for key := range there {
		if s, e := table.Find(HashOf(key), key); s == None || e.Value != key {
			t.Fatalf("key %d is lost", key)
		}
	}
	if table.Len() != len(there) {
		t.Fatalf("%d keys, want %d", table.Len(), len(there))
	}
	return steps
}

// all returns the entries of all keys.
func (t *Table[K, V]) all() (entries []*Entry[K, V]) {
	for n := range t.Slabs() {
		for s := range t.slots.live(n) {
			entries = append(entries, t.At(s))
		}
	}
	return entries
}

// What is deleted while keys move may take slabs with it, also those that are to be moved next.
func TestSlabsGoWhileKeysMove(t *testing.T) {
	var table Table[int, struct{}]
	const n = 4*keptBuckets*keysPerBucket + 1
	var slots []Slot
	for key := range n {
		s, _ := insert(&table, key)
		slots = append(slots, s)
	}
	for i := n - 1; table.isMoving(); i-- {
		for key := i; key > i-slabLen/2; key-- {
			// Without moving, as fast as memory can go.
			table.removeMoving(table.At(slots[key]).hash, slots[key])
			table.slots.release(slots[key], table.At(slots[key]))
			table.count--
		}
		i -= slabLen/2 - 1
		table.moveSome()
	}
	table.checkInvariants(t)
}

// Should an index be too small or too large again before all keys have moved, they do so then.
func TestGrowthWhileKeysMove(t *testing.T) {
	var table Table[int, struct{}]
	const n = 4*keptBuckets*keysPerBucket + 1
	for key := range n {
		insert(&table, key)
	}
	for _, resize := range []func(){table.grow, table.grow, table.shrink} {
		if !table.isMoving() {
			t.Fatal("no keys are moving")
		}
		resize()
		table.checkInvariants(t)
	}
	for key := range n {
		if find(&table, key) == None {
			t.Fatalf("key %d is lost", key)
		}
	}
}

// A queue adds hundreds of keys under one lock. So few slabs are moved meanwhile, whether the keys are known
// or not.
func TestManyCallsMoveFewSlabs(t *testing.T) {
	for _, what := range []string{"new", "known"} {
		var table Table[int, int]
		n := 0
		for ; !table.isMoving(); n++ {
			insert(&table, n)
		}
		const calls, most = 256, 32
		before := table.moved
		for i := range calls {
			key := n + i
			if what == "known" {
				key = i
			}
			insert(&table, key)
		}
		if moved := table.moved - before; moved > most || !table.isMoving() {
			t.Errorf("%d calls with %s keys move %d slabs, want at most %d", calls, what, moved, most)
		}
	}
}

// A table whose keys are only found again, as those of a limiter are, must not keep the old index forever.
func TestKnownKeysEndTheMoving(t *testing.T) {
	var table Table[int, struct{}]
	const n = 4*keptBuckets*keysPerBucket + 1
	for key := range n {
		insert(&table, key)
	}
	if !table.isMoving() {
		t.Fatal("no keys are moving")
	}
	for range 10 {
		for key := range n {
			if _, inserted := insert(&table, key); inserted {
				t.Fatalf("key %d was not there", key)
			}
		}
	}
	if table.isMoving() {
		t.Errorf("the old index of %d buckets is still kept after %d calls", len(table.old.buckets), 10*n)
	}
}

// To clear an index of 16 MiB takes a millisecond, and one of ten million keys tens of them: the caller holds
// a lock meanwhile.
func TestHugeIndexIsNotClearedAndKept(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // A collection takes what is kept.
	for n, kept := range map[int]bool{largestSpare: true, 2 * largestSpare: false} {
		var table Table[int, struct{}]
		table.old = indexOf(make([]bucket, n))
		table.forgetOld()
		if buckets := table.spare.Take(n); (buckets != nil) != kept || table.isMoving() {
			t.Errorf("of an old index of %d buckets %d are kept", n, len(buckets))
		}
	}
}
