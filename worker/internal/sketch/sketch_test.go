package sketch

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// A sketch of a hundred keys a minute is off by 1 % of all at most, and forgets what is ten minutes old.
func TestAgainstExactCounts(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		zipf := rand.NewZipf(rng, 1.1, 1, 5000)
		var c Counts[uint64]
		at := time.Unix(1e9, 0)
		var minutes []map[uint64]uint64
		for range 25 {
			exact := make(map[uint64]uint64)
			for range 1000 + rng.IntN(5000) {
				key := zipf.Uint64()
				c.Add(key, at)
				exact[key]++
			}
			minutes = append(minutes, exact)
			counts, total := c.Sum(at)
			want, wantTotal := make(map[uint64]uint64), uint64(0)
			for _, m := range minutes[max(0, len(minutes)-Minutes):] {
				for key, n := range m {
					want[key] += n
					wantTotal += n
				}
			}
			if total != wantTotal {
				t.Fatalf("seed %d: %d in all, want %d", seed, total, wantTotal)
			}
			for key, n := range want {
				if d := int64(counts[key].N) - int64(n); max(d, -d) > int64(total/100) {
					t.Fatalf("seed %d: key %d came %d times, want %d of %d", seed, key, counts[key].N, n, total)
				}
			}
			at = at.Add(time.Minute)
		}
		if counts, total := c.Sum(at.Add(time.Hour)); total != 0 || len(counts) != 0 {
			t.Errorf("after an hour: %d", total)
		}
	}
}

// The last causes of a key count. Those of a key that has left the sketch change nothing.
func TestCauses(t *testing.T) {
	var c Counts[int]
	var at time.Time // before 1970, as of a fake clock
	because := func(reason string) workqueue.Causes {
		return workqueue.Causes{Last: []workqueue.Cause{{Reason: reason}}}
	}
	c.Add(1, at)
	c.SetCauses(1, at, because("first"))
	c.SetCauses(2, at, because("of no key"))
	c.Add(1, at.Add(time.Minute))
	if n, _ := c.Sum(at.Add(time.Minute)); n[1].N != 2 || n[1].Causes.Last[0].Reason != "first" {
		t.Errorf("%+v", n)
	}
	c.SetCauses(1, at.Add(time.Minute), because("second"))
	if n, _ := c.Sum(at.Add(time.Minute)); n[1].Causes.Last[0].Reason != "second" || len(n) != 1 {
		t.Errorf("%+v", n)
	}
}
