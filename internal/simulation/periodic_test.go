package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/stablehash"
)

// A controller looks at each of its keys once in each period. It lists them all when it starts, and is
// restarted twice.
const (
	periodicKeys    = 10_000
	periodicPeriod  = 600 * time.Second
	periodicSeconds = 3 * 600 // are simulated
)

var periodicStarts = []time.Duration{0, 750 * time.Second, 1390 * time.Second}

// periodicRun is how many keys come in each second.
type periodicRun struct {
	name  string
	calls [periodicSeconds]int
}

// simulatePeriodic lets each key come due after what again says, from the start of the process.
func simulatePeriodic(name string, again func(key int, now time.Duration) time.Duration) *periodicRun {
	run := &periodicRun{name: name}
	for i, start := range periodicStarts {
		end := periodicSeconds * time.Second
		if i+1 < len(periodicStarts) {
			end = periodicStarts[i+1]
		}
		for key := range periodicKeys {
			for now := start; now < end; now += again(key, now) {
				run.calls[now/time.Second]++
			}
		}
	}
	return run
}

// busiest returns the most calls in a second in which no process starts.
func (r *periodicRun) busiest() (n int) {
	for s, calls := range r.calls {
		isStart := false
		for _, start := range periodicStarts {
			isStart = isStart || start == time.Duration(s)*time.Second
		}
		if !isStart {
			n = max(n, calls)
		}
	}
	return n
}

// TestPeriodicSimulation simulates three ways of coming again. It writes docs/periodic.svg if called with
// -update, and otherwise asserts that this is what it would write.
func TestPeriodicSimulation(t *testing.T) {
	random := rand.New(rand.NewPCG(32, 0))
	epoch := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	runs := []*periodicRun{
		simulatePeriodic("RequeueAfter(period)", func(int, time.Duration) time.Duration { return periodicPeriod }),
		simulatePeriodic("RequeueAfter(period ± 10 %)", func(int, time.Duration) time.Duration {
			return periodicPeriod*9/10 + time.Duration(random.Int64N(int64(periodicPeriod/5)))
		}),
		simulatePeriodic("each key at its own moment of the period",
			func(key int, now time.Duration) time.Duration {
				phase := stablehash.Phase(stablehash.String(fmt.Sprintf("cluster-%d", key)), periodicPeriod)
				return stablehash.UntilPhase(phase, periodicPeriod, epoch.Add(now))
			}),
	}
	for i, most := range []int{periodicKeys, 200, 40} {
		if n := runs[i].busiest(); n > most || n < most/3 {
			t.Errorf("%s: %d calls in the busiest second, want up to %d", runs[i].name, n, most)
		}
	}
	golden(t, "periodic.svg", func(string) string { return periodicFigure(runs) })
}

func periodicFigure(runs []*periodicRun) string {
	const (
		left, top, height, pitch, second = 56, 30, 74, 104, 0.38
		decades                          = 4
	)
	x := func(s int) float64 { return left + second*float64(s) }
	var b strings.Builder
	width, bottom := x(periodicSeconds)+14, top+pitch*(len(runs)-1)+height
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#80858c">
<title>Calls a second of %d keys with a period of %v and two restarts, by how a key is requeued</title>
`, width, bottom+40, width, bottom+40, periodicKeys, periodicPeriod)
	for i, r := range runs {
		fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\">\n", top+pitch*i)
		for n, d := 1, 0; d <= decades; n, d = 10*n, d+1 {
			fmt.Fprintf(&b, `<path d="M%d %.1fH%.1f" stroke="#80858c" stroke-opacity=".35"/><text x="%d" y="%.1f" text-anchor="end" font-size="10">%d</text>
`, left, figureY(n, height, 2e4), x(periodicSeconds), left-5, figureY(n, height, 2e4)+3.5, n)
		}
		for _, start := range periodicStarts[1:] {
			fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#80858c" stroke-dasharray="4 3"/>
`, x(int(start/time.Second)), -8, height)
		}
		fmt.Fprintf(&b, `<path d="%s" stroke="#3b8fe0" stroke-width="1"/>
<text x="%d" y="-10" font-weight="bold">%s: up to %d calls a second, apart from starts</text>
</g>
`, figureBars(periodicSeconds, height, 2e4, x, func(s int) int { return r.calls[s] }), left, r.name, r.busiest())
	}
	for s := 0; s <= periodicSeconds; s += 300 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10">%d</text>
`, x(s), bottom+14, s)
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">seconds since the first start; dashed: restarts</text>
<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">calls a second (logarithmic)</text>
</svg>
`, x(periodicSeconds/2), bottom+32, (top+bottom)/2)
	return b.String()
}
