package simulation

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// A fleet of replicas, each with one key, finds the service that they all need failed at the same
// moment. Each replica has a limiter of its own and attempts after that limiter's delays. The service is back
// after a while, but answers only a limited number of requests a second.
const (
	fleetSize     = 1000
	fleetBase     = 100 * time.Millisecond
	fleetMax      = 30 * time.Second
	fleetDown     = 120 // seconds
	fleetCapacity = 100 // requests a second
	fleetSeconds  = 480 // are simulated
)

// fleetRun is what the service has seen.
type fleetRun struct {
	jitter           workqueue.Jitter
	refused, granted [fleetSeconds]int // in each second
}

type attempt struct {
	at      time.Duration
	replica int
}

type attempts []attempt

func (r attempts) Len() int { return len(r) }
func (r attempts) Less(i, j int) bool {
	return r[i].at < r[j].at || r[i].at == r[j].at && r[i].replica < r[j].replica
}
func (r attempts) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *attempts) Push(x any)   { *r = append(*r, x.(attempt)) }
func (r *attempts) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

func simulateFleet(jitter workqueue.Jitter) *fleetRun {
	run := &fleetRun{jitter: jitter}
	clock := testkit.NewFakeClock()
	random := rand.New(rand.NewPCG(2015, uint64(jitter))).Uint64N
	limiters := make([]workqueue.TypedRateLimiter[string], fleetSize)
	due := &attempts{}
	for i := range limiters {
		limiters[i] = workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{
			Base: fleetBase, Max: fleetMax, Jitter: jitter, Clock: clock,
		})
		setRandom(limiters[i], random)
		heap.Push(due, attempt{0, i})
	}
	for due.Len() > 0 {
		next := heap.Pop(due).(attempt)
		second := int(next.at / time.Second)
		if second >= fleetSeconds {
			break
		}
		if second >= fleetDown && run.granted[second] < fleetCapacity {
			run.granted[second]++
			continue
		}
		run.refused[second]++
		clock.SetTime(testkit.Epoch.Add(next.at))
		next.at += limiters[next.replica].When("service")
		heap.Push(due, next)
	}
	return run
}

func (r *fleetRun) requests(second int) int { return r.refused[second] + r.granted[second] }

func total(seconds []int) (n int) {
	for _, s := range seconds {
		n += s
	}
	return n
}

// busiest returns the most requests in a second while the service is down, from that second on.
func (r *fleetRun) busiest(from int) (n int) {
	for s := from; s < fleetDown; s++ {
		n = max(n, r.requests(s))
	}
	return n
}

// back returns how many seconds after the service so many replicas are back.
func (r *fleetRun) back(replicas int) int {
	for s := range fleetSeconds {
		if replicas -= r.granted[s]; replicas <= 0 {
			return s + 1 - fleetDown
		}
	}
	return math.MaxInt
}

var jitterNames = [...]string{"NoJitter", "FullJitter", "EqualJitter"}

// TestBackoffSimulation simulates the fleet with each jitter and without. It writes the table in docs/backoff.md
// if called with -update, and otherwise asserts that it is what it would write.
func TestBackoffSimulation(t *testing.T) {
	var runs []*fleetRun
	for _, jitter := range []workqueue.Jitter{
		workqueue.NoJitter, workqueue.FullJitter, workqueue.EqualJitter,
	} {
		r := simulateFleet(jitter)
		runs = append(runs, r)
		if n := total(r.granted[:]); n != fleetSize {
			t.Errorf("%v: %d replicas got their answer", jitter, n)
		}
		if jitter == workqueue.NoJitter {
			if r.busiest(60) != fleetSize {
				t.Errorf("%v: %d requests in the busiest second, want all at once", jitter, r.busiest(60))
			}
			continue
		}
		if r.busiest(60) > fleetSize/5 {
			t.Errorf("%v: %d requests in the busiest second", jitter, r.busiest(60))
		}
		if back := r.back(fleetSize); back > int(fleetMax/time.Second)+1 {
			t.Errorf("%v: all replicas are back after %d s", jitter, back)
		}
	}
	golden(t, fleetTable(runs))
}

func fleetTable(runs []*fleetRun) string {
	var b strings.Builder
	b.WriteString(
		"| | requests while it is down | busiest second after 10 s | after 60 s | half are back after | all are back after | refused meanwhile |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range runs {
		fmt.Fprintf(&b, "| `%v` | %d | %d | %d | %d s | %d s | %d |\n", jitterNames[r.jitter], total(r.refused[:fleetDown]),
			r.busiest(10), r.busiest(60), r.back(fleetSize/2), r.back(fleetSize), total(r.refused[fleetDown:]))
	}
	return b.String()
}
