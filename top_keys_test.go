package workqueue

import "testing"

// What has been found is looked through when it is twice what is wanted, not before and not later, and then
// nothing is kept that cannot be among the best.
func TestMostRequeuedLooksThroughFew(t *testing.T) {
	const limit = 3
	steps := []struct{ offer, length, above int }{ // what is offered, and what is there before it
		{5, 0, 0},
		{1, 5, 0},
		{2, 3, 4}, // 6, 5 and 4 were the best of six
		{4, 5, 4},
		{1, 3, 10},
	}
	next := uint32(1)
	best := mostRequeued(limit, func(n int, found *topKeys[int]) bool {
		step := steps[n]
		if len(found.keys) != step.length || found.above != step.above {
			t.Errorf("step %d: %d keys, above %d, want %d, above %d", n, len(found.keys), found.above, step.length, step.above)
		}
		for range step.offer {
			if found.above > 0 {
				found.offer(-1, uint32(found.above)) // is not among the best
			}
			found.offer(int(next), next)
			next++
		}
		return n+1 < len(steps)
	})
	if len(best) != limit || best[0].Key != 13 || best[1].Key != 12 || best[2].Key != 11 {
		t.Errorf("the best are %v", best)
	}
}
