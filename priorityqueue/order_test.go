package priorityqueue_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// arrival is a key that became ready.
type arrival struct {
	added time.Duration
	first int // the priority with which it was added
}

// The bound of the package comment: a key of priority p is handed out before every key of priority P that
// becomes ready more than (P-p)·Aging after it. Raising a priority does not break it.
func TestAgingBound(t *testing.T) {
	const aging = 2 * time.Second
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			q := pq.New(pq.Config[int]{Aging: aging})
			defer q.ShutDown()
			began := time.Now()
			keys := map[int]*arrival{}
			check := func() {
				key, priority, _ := q.GetWithPriority()
				taken := keys[key]
				delete(keys, key)
				for other, k := range keys {
					if taken.added > k.added+time.Duration(priority-k.first)*aging {
						t.Fatalf("key %d, of priority %d and ready at %v, comes before %d, of %d and ready at %v",
							key, priority, taken.added, other, k.first, k.added)
					}
				}
				q.Done(key)
			}
			for key := range 300 {
				p := r.IntN(7) - 3
				keys[key] = &arrival{added: time.Since(began), first: p}
				q.AddWithOpts(pq.AddOpts{Priority: p}, key)
				if raised := r.IntN(key + 1); keys[raised] != nil {
					q.AddWithOpts(pq.AddOpts{Priority: r.IntN(7) - 3}, raised)
				}
				if r.IntN(2) == 0 {
					check()
				}
				time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
			}
			for len(keys) > 0 {
				check()
			}
		})
	}
}

// With groups, after the same time no more than n·W keys are handed out before it: n keys that rank no
// later than it, W the weights of all groups together.
func TestAgingBoundWithGroups(t *testing.T) {
	const aging, groups, weights, topPriority = time.Second, 4, 1 + 2 + 3 + 4, 3
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			q := pq.New(pq.Config[int]{
				Aging:  aging,
				Group:  func(key int) string { return fmt.Sprint(key % groups) },
				Weight: func(group string) int { return int(group[0]-'0') + 1 },
			})
			defer q.ShutDown()
			began := time.Now()
			rank := func(a arrival) time.Duration { return a.added - time.Duration(a.first)*aging }
			ready := map[int]arrival{}
			limits := map[int]int{} // how many more keys may come first
			for key := range 2000 {
				now := time.Since(began)
				a := arrival{added: now, first: r.IntN(topPriority + 1)}
				ready[key] = a
				q.AddWithOpts(pq.AddOpts{Priority: a.first}, key)
				for other, k := range ready {
					if _, ok := limits[other]; ok || now < k.added+time.Duration(topPriority-k.first)*aging {
						continue
					}
					n := 0
					for _, o := range ready {
						if rank(o) <= rank(k) {
							n++
						}
					}
					limits[other] = n * weights
				}
				if r.IntN(5) > 0 {
					got, _ := q.Get()
					q.Done(got)
					delete(ready, got)
					delete(limits, got)
					for other := range limits {
						if limits[other]--; limits[other] < 0 {
							t.Fatalf("key %d, %+v, is still there", other, ready[other])
						}
					}
				}
				time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			}
		})
	}
}

// The order of priorities holds at both ends of their range.
func TestExtremePriorities(t *testing.T) {
	const bound = 1<<30 - 1
	for _, aging := range []time.Duration{0, math.MaxInt64} {
		script(t, pq.Config[string]{Aging: aging}, func(t *testing.T, q *pq.Queue[string]) {
			for name, p := range map[string]int{"min": -bound, "min+1": -bound + 1, "-1": -1, "0": 0, "1": 1, "2": 2,
				"max-1": bound - 2, "max": bound - 1} {
				q.AddWithOpts(pq.AddOpts{Priority: p}, name)
			}
			drain(t, q, "max max-1 2 1 0 -1 min+1 min")
			q.AddWithOpts(pq.AddOpts{Priority: math.MinInt}, "last")
			q.AddWithOpts(pq.AddOpts{Priority: math.MaxInt}, "first")
			q.Add("0")
			drain(t, q, "first 0 last")
		})
	}
	// Ranks are equal where the higher priority is that much younger.
	script(t, pq.Config[string]{Aging: 1}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{Priority: math.MinInt32}, "low")
		time.Sleep(1<<32 - 1)
		q.AddWithOpts(pq.AddOpts{Priority: math.MaxInt32}, "high")
		drain(t, q, "high low")
	})
}

// run hands out random keys, with or without a raise of one of them, and returns how many come before that
// key.
func run(config pq.Config[int], seed uint64, raises bool) (before int) {
	const keys, held = 120, 3
	r := rand.New(rand.NewPCG(seed, 2))
	raisedAt := 20 + r.IntN(keys-20)
	raised, to := raisedAt-1-r.IntN(20), r.IntN(5)
	c := testkit.NewFakeClock()
	config.Clock = c
	q := pq.New(config)
	defer q.ShutDown()
	var holds []int
	came := false
	get := func() {
		if s := q.Stats(); s.Queued > s.Blocked && !came {
			key, _ := q.Get()
			holds = append(holds, key)
			if came = key == raised; !came {
				before++
			}
		}
	}
	for key := range keys {
		q.AddWithOpts(pq.AddOpts{Priority: r.IntN(4)}, key)
		if key == raisedAt && raises && !came {
			q.AddWithOpts(pq.AddOpts{Priority: to}, raised)
		}
		if r.IntN(2) == 0 {
			get()
		}
		if len(holds) > held {
			q.Done(holds[0])
			holds = holds[1:]
		}
		c.Step(time.Duration(r.IntN(1000)) * time.Millisecond)
	}
	for !came {
		for _, key := range holds {
			q.Done(key)
		}
		holds = nil
		get()
	}
	return before
}

// To raise a key's priority never makes it come later, in a queue without groups or without Aging.
func TestRaiseNeverDelays(t *testing.T) {
	group := func(key int) string { return fmt.Sprint(key % 5) }
	weight := func(group string) int { return 1 + int(group[0]-'0')*4 }
	for name, config := range map[string]pq.Config[int]{
		"priorities": {},
		"Aging":      {Aging: 2 * time.Second},
		"groups":     {Group: group, Weight: weight, Limit: func(string) int { return 1 }},
	} {
		earlier := 0
		for seed := range uint64(300) {
			unraised, raised := run(config, seed, false), run(config, seed, true)
			if raised < unraised {
				earlier++
			}
			if raised > unraised {
				t.Errorf("%s, seed %d: %d keys come before a raised one, and %d if it is not", name, seed,
					raised, unraised)
			}
		}
		if earlier < 20 {
			t.Errorf("%s: of 300 raised keys %d come earlier", name, earlier)
		}
	}
}
