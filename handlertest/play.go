package handlertest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// result is what is known of a run.
type result struct {
	failed   *failure
	outcome  any      // of the measure
	used     schedule // what was disturbed
	crashed  bool
	sites    []site          // the last site of each kind and name
	moments  []time.Duration // at which something happened
	story    []told
	accepted []acceptance
	known    []acceptance // what has happened of it
	steps    int          // how many events it had
	runs     int          // Scenario.Runs
}

// result returns what is known of the run.
func (s *sim) result() result {
	s.mu.Lock()
	defer s.mu.Unlock()
	res := result{failed: s.failed, used: maps.Clone(s.used), crashed: s.crashed > 0,
		story: slices.Clone(s.story), moments: s.moments, steps: s.steps, accepted: s.accepted,
		known: slices.Collect(maps.Keys(s.known))}
	for at, n := range s.counts {
		res.sites = append(res.sites, site{at.kind, at.name, n})
	}
	slices.SortFunc(res.sites, compareSites)
	return res
}

// runLabel is the label of the goroutines of a run. Goroutines that these start inherit it.
const runLabel = "handlertest run"

var runs atomic.Int64 // of this test binary; their labels

// play runs a scenario in a bubble. How says how to repeat the run. It is a label of the goroutines, for the
// trace of a panic in a goroutine of the handler's own, which ends the test binary.
func play[K comparable](t *testing.T, scenario func(*Scenario[K]), d decider, telling bool, how string) result {
	run := fmt.Sprint(runs.Add(1))
	ended := make(chan result)
	go func() {
		labels := pprof.Labels("handlertest", how, runLabel, run)
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), labels))
		var res result
		var s *sim
		defer func() {
			switch v := recover(); { // Only this goroutine still runs.
			case v == nil:
			case s == nil:
				res.failed = &failure{kind: "bubble", text: fmt.Sprintf("Converges makes bubbles of "+
					"testing/synctest, and must be called outside of them (%v)", v)}
			case !s.over:
				res = s.result()
				res.failed = &failure{kind: "bubble", text: fmt.Sprintf("all goroutines wait for each other (%v):\n%s",
					v, stacksOf(run))}
			default:
				res.leaves(fmt.Sprintf("goroutines are left when the context of the process has ended (%v):\n%s", v,
					stacksOf(run)))
			}
			ended <- res
		}()
		if deadline, ok := t.Deadline(); ok { // It may hang, where nothing in the bubble sees that.
			began := time.Now()
			lastWords := time.AfterFunc(time.Until(deadline)-time.Second, func() {
				fmt.Fprintf(os.Stderr, "handlertest: the time of %s ends in the run %s, which began %v ago (if that is "+
					"less than 1s: raise -timeout or lower Scenario.Runs)\n", t.Name(), how, time.Since(began))
			})
			defer lastWords.Stop()
		}
		synctest.Test(t, func(*testing.T) {
			s = newSim(d, telling)
			over := make(chan any)
			go func() { // If the scenario ends its goroutine, the bubble continues.
				var v any
				defer func() { over <- v }()
				defer func() { v = recover() }()
				playInBubble(scenario, s, &res, run)
			}()
			if v := <-over; v != nil {
				panic(v)
			}
		})
	}()
	return <-ended
}

// stacksOf returns the stacks of the goroutines of a run, from the text of the only profile that has their
// labels: synctest names no goroutine.
func stacksOf(run string) string {
	var profile strings.Builder
	var stacks []string
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:%q", runLabel, run)) {
			stacks = append(stacks, stack)
		}
	}
	return strings.Join(stacks[:min(len(stacks), 20)], "\n\n")
}

// leaves notes that the bubble has panicked, because goroutines are left.
func (res *result) leaves(text string) {
	if res.failed != nil || res.crashed { // What a crash leaves behind may wait for what it has ended.
		return
	}
	left := &failure{kind: "left", text: text}
	if known := left.acceptedBy(res.accepted); known != nil {
		res.known = append(res.known, known...)
	} else {
		res.failed = left
	}
}

// playInBubble sets the result when the run is over, also if the scenario panics or ends its goroutine.
func playInBubble[K comparable](scenario func(*Scenario[K]), s *sim, res *result, label string) {
	r := &run[K]{sim: s, label: label, running: make(map[*call]struct{}), failing: make(map[processKey]error)}
	r.Scenario = &Scenario[K]{run: r}
	returned := false
	var outcome any
	defer func() {
		s.mu.Lock()
		if v := recover(); v != nil {
			s.failed = &failure{kind: "panic", text: fmt.Sprintf("panic: %v\n%s", v, debug.Stack())}
		} else if !returned {
			s.failed = &failure{kind: "panic",
				text: "the scenario has ended its goroutine (t.FailNow, runtime.Goexit)"}
		}
		s.over = true
		s.mu.Unlock()
		*res = s.result()
		res.outcome, res.runs = outcome, r.Runs
		r.stop()
	}()
	scenario(r.Scenario)
	r.prepare()
	s.afterEvents = r.checkAlways
	s.drive(r.resting)
	if s.failed == nil {
		r.checkEnd()
		outcome = r.measure()
	}
	returned = true
}
