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

// TestBackoffSimulation simulates the fleet with each jitter and without. It writes docs/backoff.svg, and the
// table in docs/backoff.md, if called with -update, and otherwise asserts that they are what it would write.
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
	golden(t, "backoff.svg", func(string) string { return fleetFigure(runs) })
	goldenPart(t, "backoff.md", fleetTable(runs))
}

func fleetTable(runs []*fleetRun) string {
	var b strings.Builder
	b.WriteString(
		"| | requests while it is down | busiest second after 10 s | after 60 s | half are back after | all are back after | refused meanwhile |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range runs {
		fmt.Fprintf(&b, "| `%v` | %d | %d | %d | %d s | %d s | %d |\n", r.jitter, total(r.refused[:fleetDown]),
			r.busiest(10), r.busiest(60), r.back(fleetSize/2), r.back(fleetSize), total(r.refused[fleetDown:]))
	}
	return b.String()
}

// The figure has a panel for each run, one below the other, with a logarithmic scale. Its colours can be
// distinguished and read on white and on black.
const (
	figureSeconds = 420 // are shown
	figureSecond  = 1.5 // is how wide a second is
	figureLeft    = 56
	figureTop     = 34
	panelHeight   = 74
	panelPitch    = 100
	panelMost     = 5000 // is the top of the scale
)

func fleetFigure(runs []*fleetRun) string {
	var b strings.Builder
	width, height := figureLeft+figureSeconds*figureSecond+14, figureTop+panelPitch*len(runs)+22
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#80858c">
<title>Requests a second of %d replicas to a service that is down for %d seconds, by jitter</title>
`, width, height, width, height, fleetSize, fleetDown)
	b.WriteString(`<rect x="56" y="8" width="10" height="10" fill="#e0812f"/><text x="71" y="17">refused</text>
<rect x="136" y="8" width="10" height="10" fill="#3b8fe0"/><text x="151" y="17">answered</text>
`)
	fmt.Fprintf(&b, `<text x="%.1f" y="36" font-size="10">the service is back</text>
`, figureX(fleetDown)+6)
	bars := func(requests func(second int) int) string {
		return figureBars(figureSeconds, panelHeight, panelMost, figureX, requests)
	}
	for i, r := range runs {
		fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\">\n", figureTop+panelPitch*i)
		for _, n := range []int{1, 10, 100, 1000} {
			fmt.Fprintf(&b, `<path d="M%d %.1fH%.1f" stroke="#80858c" stroke-opacity=".35"/><text x="%d" y="%.1f" text-anchor="end" font-size="10">%d</text>
`, figureLeft, figureY(n, panelHeight, panelMost), figureX(figureSeconds), figureLeft-5, figureY(n, panelHeight, panelMost)+3.5, n)
		}
		fmt.Fprintf(&b, `<path d="%s" stroke="#e0812f" stroke-width="1.5"/>
<path d="%s" stroke="#3b8fe0" stroke-width="1.5"/>
<path d="M%.1f %d V%d" stroke="#80858c" stroke-dasharray="4 3"/>
<text x="%.1f" y="11" text-anchor="end" font-weight="bold">%v</text>
</g>
`, bars(r.requests), bars(func(s int) int { return r.granted[s] }), figureX(fleetDown), -8, panelHeight, figureX(figureSeconds), r.jitter)
	}
	bottom := figureTop + panelPitch*(len(runs)-1) + panelHeight
	for s := 0; s <= figureSeconds; s += 60 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10">%d</text>
`, figureX(s), bottom+14, s)
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">seconds since the failure</text>
<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">requests a second (logarithmic)</text>
</svg>
`, figureX(figureSeconds/2), bottom+32, (figureTop+bottom)/2)
	return b.String()
}

func figureX(second int) float64 { return figureLeft + figureSecond*float64(second) }
