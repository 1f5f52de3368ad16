package sharding

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPlan checks random plans: shares differ by at most one, no plan has fewer moves, and the plan stays the
// same while its moves are done in any order.
func TestPlan(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		slots, members, takers := make([]tableSlot, 1+r.IntN(40)), 1+r.IntN(8), make(map[string]bool)
		for m := range members {
			if r.IntN(4) > 0 {
				takers[planMember(m)] = true
			}
		}
		anyone := func() string {
			if r.IntN(4) == 0 {
				return ""
			}
			return planMember(r.IntN(1 + r.IntN(members)))
		}
		for s := range slots {
			slots[s].holder = anyone()
			if r.IntN(3) == 0 {
				slots[s].next = anyone()
			}
		}
		target := assign(slots, takers)
		if len(takers) == 0 {
			if slices.ContainsFunc(target, func(id string) bool { return id != "" }) {
				t.Fatal("a plan without members")
			}
			continue
		}
		checkPlan(t, slots, takers, target)
		for s := range slots { // The plan is written,
			slots[s].next = ""
			if target[s] != slots[s].holder {
				slots[s].next = target[s]
			}
		}
		for _, s := range r.Perm(len(slots)) { // and carried out.
			if got := assign(slots, takers); !slices.Equal(got, target) {
				t.Fatalf("the plan for %v (%v) was %v, and then %v", slots, takers, target, got)
			}
			slots[s] = tableSlot{holder: target[s]}
		}
	}
}

func planMember(m int) string { return fmt.Sprintf("member-%02d", m) }

func checkPlan(t *testing.T, slots []tableSlot, takers map[string]bool, target []string) {
	t.Helper()
	share, held, moves := make(map[string]int), make(map[string]int), 0
	for s, id := range target {
		if !takers[id] {
			t.Fatalf("slot %d goes to %q of %v", s, id, takers)
		}
		share[id]++
		if h := slots[s].holder; takers[h] {
			held[h]++
			if h != id {
				moves++
			}
		}
	}
	base, extra := len(slots)/len(takers), len(slots)%len(takers)
	needed := 0
	for id := range takers {
		if share[id] < base || share[id] > base+1 {
			t.Fatalf("shares %v of %v", share, takers)
		}
		// Of what a member has above the base it must give away all, or one less if it is one of the extra.
		over := max(0, held[id]-base)
		if over > 0 && extra > 0 {
			over--
			extra--
		}
		needed += over
	}
	if moves != needed {
		t.Fatalf("%d slots move, and %d have to: %v to %v (%v)", moves, needed, slots, target, takers)
	}
}
