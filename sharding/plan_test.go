package sharding

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestPlan checks random plans: shares differ by at most one, no plan has fewer moves, and the plan stays the same while
// its moves are done in any order.
func TestPlan(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		slots, members := 1+r.IntN(40), 1+r.IntN(8)
		holder, next, takes := make([]int32, slots), make([]int32, slots), make([]bool, members)
		for m := range takes {
			takes[m] = r.IntN(4) > 0
		}
		anyone := func() int32 {
			if r.IntN(4) == 0 {
				return nobody
			}
			return int32(r.IntN(1 + r.IntN(members)))
		}
		for s := range holder {
			holder[s], next[s] = anyone(), nobody
			if r.IntN(3) == 0 {
				next[s] = anyone()
			}
		}
		target := plan(holder, next, takes)
		if !slices.Contains(takes, true) {
			if target != nil {
				t.Fatal("a plan without members")
			}
			continue
		}
		checkPlan(t, holder, takes, target)
		for s := range next { // The plan is written,
			next[s] = nobody
			if target[s] != holder[s] {
				next[s] = target[s]
			}
		}
		for _, s := range r.Perm(slots) { // and carried out.
			if got := plan(holder, next, takes); !slices.Equal(got, target) {
				t.Fatalf("the plan for %v to %v (%v) was %v, and then %v", holder, next, takes, target, got)
			}
			holder[s], next[s] = target[s], nobody
		}
	}
}

func checkPlan(t *testing.T, holder []int32, takes []bool, target []int32) {
	t.Helper()
	share, held, moves := make([]int, len(takes)), make([]int, len(takes)), 0
	for s, m := range target {
		if m == nobody || !takes[m] {
			t.Fatalf("slot %d goes to %d of %v", s, m, takes)
		}
		share[m]++
		if h := holder[s]; h != nobody && takes[h] {
			held[h]++
			if h != m {
				moves++
			}
		}
	}
	n := 0
	for _, takes := range takes {
		if takes {
			n++
		}
	}
	base, extra := len(holder)/n, len(holder)%n
	needed := 0
	for m, takes := range takes {
		if !takes {
			continue
		}
		if share[m] < base || share[m] > base+1 {
			t.Fatalf("shares %v of %v", share, takes)
		}
		// Of what a member has above the base it must give away all, or one less if it is one of the extra.
		over := max(0, held[m]-base)
		if over > 0 && extra > 0 {
			over--
			extra--
		}
		needed += over
	}
	if moves != needed {
		t.Fatalf("%d slots move, and %d have to: %v to %v (%v)", moves, needed, holder, target, takes)
	}
}

// TestPlanOfManyIsQuick: a hundred members, of which a tenth is new and a tenth is dead, and 4,096 slots.
func TestPlanOfManyIsQuick(t *testing.T) {
	holder, next, takes := largePlan()
	best := time.Hour
	for range 20 {
		began := time.Now()
		plan(holder, next, takes)
		best = min(best, time.Since(began))
	}
	if best > 5*time.Millisecond {
		t.Errorf("a plan takes %v", best)
	}
}

func largePlan() (holder, next []int32, takes []bool) {
	for m := range 100 {
		takes = append(takes, m >= 10)
	}
	for s := range maxSlots {
		holder, next = append(holder, int32(s%90)), append(next, nobody)
	}
	return holder, next, takes
}

func BenchmarkPlan(b *testing.B) {
	holder, next, takes := largePlan()
	for b.Loop() {
		plan(holder, next, takes)
	}
}
