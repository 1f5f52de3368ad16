package handlertest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Environment variables.
const (
	scheduleVariable = "HANDLERTEST"      // a schedule, to repeat a run
	runsVariable     = "HANDLERTEST_RUNS" // how many random runs there are, instead of randomRuns
	seedVariable     = "HANDLERTEST_SEED" // the seed of the first of them, instead of 1
)

// How long a search is. No limit is a time: a slow machine finds what a fast one does.
const (
	maxOneByOne = 400       // runs with one disturbance, unless Scenario.Runs says another number
	randomRuns  = 1000      // a fifth of it with -short
	shrinkSteps = 1_000_000 // events of the runs that look for a shorter schedule
)

// search looks for a schedule under which a scenario fails.
type search struct {
	play        func(d decider, telling bool, how string) result
	repeat      string // the command, after a space
	log         func(format string, args ...any)
	undisturbed result
	runs        int
	known       map[acceptance]int // how many runs had a failure that the scenario accepts
}

// under runs the scenario under a schedule, and compares the outcome.
func (s *search) under(d decider, telling bool) result {
	s.runs++
	res := s.run(d, telling)
	switch {
	case res.failed != nil:
	case !same(s.undisturbed.outcome, res.outcome):
		res.failed = outcomeDiffers(s.undisturbed.outcome, res.outcome)
	}
	if res.failed != nil {
		if known := res.failed.acceptedBy(res.accepted); known != nil {
			res.failed = nil
			s.note(known)
		}
	}
	return res
}

// note counts failures that the scenario accepts.
func (s *search) note(known []acceptance) {
	for _, a := range known {
		s.known[a]++
	}
}

// run runs the scenario.
func (s *search) run(d decider, telling bool) result {
	how := "undisturbed"
	if d.fixed == nil {
		how = fmt.Sprintf("%s=%d %s=1", seedVariable, d.seed, runsVariable)
	} else if len(d.fixed) > 0 {
		how = fmt.Sprintf("%s='%v'", scheduleVariable, d.fixed)
	}
	res := s.play(d, telling, how)
	s.note(res.known)
	return res
}

// report returns what is wrong with the scenario, or nothing.
func (s *search) report() string {
	s.known = make(map[acceptance]int)
	report := s.find()
	for _, a := range s.undisturbed.accepted {
		if n := s.known[a]; n > 0 {
			s.log("handlertest: %d runs had a failure that is accepted: %q (%s)", n, a.text, a.reason)
		} else if report == "" {
			s.log("handlertest: no run had the failure that is accepted: %q (%s)", a.text, a.reason)
		}
	}
	return report
}

func (s *search) find() string {
	first := s.run(newDecider(schedule{}, 0), true)
	if first.failed != nil {
		return fmt.Sprintf("handlertest: the scenario fails undisturbed: %s\n\n%s",
			first.failed.text, storyOf(first.story))
	}
	s.undisturbed = first
	if second := s.under(newDecider(schedule{}, 0), false); second.failed != nil {
		return fmt.Sprintf("handlertest: two undisturbed runs differ: the measure, the scenario or the handler "+
			"depends on something else, such as random numbers, the order of a map, or what an earlier run has "+
			"left\n%s", second.failed.text)
	}
	if text := os.Getenv(scheduleVariable); text != "" {
		return s.only(text)
	}
	all := oneByOne(first)
	for _, fixed := range all[:min(len(all), cmp.Or(first.runs, maxOneByOne))] {
		if res := s.under(newDecider(fixed, 0), false); res.failed != nil {
			return s.shrunk(fixed, res.failed, "")
		}
	}
	return s.random()
}

// only runs the scenario under the schedule that the environment asks for.
func (s *search) only(text string) string {
	fixed, err := parseSchedule(text)
	if err != nil {
		return fmt.Sprintf("handlertest: %s: %v", scheduleVariable, err)
	}
	res := s.under(newDecider(fixed, 0), false)
	if res.failed != nil {
		return s.describe(fixed, res.failed, "")
	}
	for _, at := range fixed.sites() {
		if _, ok := res.used[at]; !ok {
			s.log("handlertest: the run never comes to %v: the handler or the scenario has changed since that "+
				"schedule was found", at)
		}
	}
	return ""
}

// oneByOne returns the schedules with one disturbance at each place of the undisturbed run where that says
// much: crashes, calls that fail, and what somebody does sometime. They take turns, because there may be more
// than are tried.
func oneByOne(first result) []schedule {
	var crashing, failing, meanwhile []schedule
	for _, at := range first.sites {
		for n := range at.n {
			here := site{at.kind, at.name, n + 1}
			switch at.kind {
			case crashes:
				crashing = append(crashing, schedule{here: 10 * time.Millisecond}, schedule{here: 3 * time.Second})
			case fail, lost, conflict:
				failing = append(failing, schedule{here: sizes[0]})
			case sometime:
				for _, moment := range first.moments {
					meanwhile = append(meanwhile, schedule{here: moment})
				}
			}
		}
	}
	slices.SortStableFunc(failing, func(a, b schedule) int {
		return cmp.Compare(a.sites()[0].n, b.sites()[0].n)
	})
	var all []schedule
	for i := range max(len(crashing), len(failing), len(meanwhile)) {
		for _, kind := range [][]schedule{crashing, failing, meanwhile} {
			if i < len(kind) {
				all = append(all, kind[i])
			}
		}
	}
	return all
}

// random runs the scenario with one seed after the other.
func (s *search) random() string {
	seed, err := number(seedVariable, 1)
	otherwise := uint64(cmp.Or(s.undisturbed.runs, randomRuns))
	if testing.Short() {
		otherwise /= 5
	}
	runs, err2 := number(runsVariable, otherwise)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Sprintf("handlertest: %v", err)
	}
	for i := range runs {
		if res := s.under(newDecider(nil, seed+i), false); res.failed != nil {
			return s.shrunk(res.used, res.failed, fmt.Sprintf("seed %d, ", seed+i))
		}
	}
	return ""
}

func number(variable string, otherwise uint64) (uint64, error) {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%s is no number", variable, text)
	}
	return n, nil
}

// shrunk describes the shortest schedule for a failure.
func (s *search) shrunk(found schedule, failed *failure, which string) string {
	runs := s.runs
	steps := 0
	fails := func(smaller schedule) bool {
		res := s.under(newDecider(smaller, 0), false)
		steps += res.steps
		return res.failed != nil && res.failed.kind == failed.kind
	}
	if !fails(found) {
		return fmt.Sprintf("handlertest: %s\nThis happened once (%srun %d), and not again under the same "+
			"schedule: the handler or the scenario depends on something else, such as random numbers, the order of "+
			"a map or of goroutines: then #1 is another call in each run\nschedule: %v",
			failed.text, which, runs, found)
	}
	shortest := shrink(found, func() bool { return steps < shrinkSteps }, fails)
	origin := fmt.Sprintf("%srun %d", which, runs)
	if len(shortest) < len(found) {
		origin += fmt.Sprintf("; shrunk from %d disturbances", len(found))
	}
	return s.describe(shortest, failed, origin)
}

// shrink returns a schedule that still fails, from which nothing more can be taken: no disturbance, and no
// time from one. It calls fails as long as goOn returns true.
func shrink(s schedule, goOn func() bool, fails func(schedule) bool) schedule {
	try := func(smaller schedule) bool {
		if !goOn() || !fails(smaller) {
			return false
		}
		s = smaller
		return true
	}
	for part := (len(s) + 1) / 2; part > 0; part /= 2 { // Many at once first.
		for again := true; again; {
			again = false
			for taken := range slices.Chunk(s.sites(), part) {
				smaller := maps.Clone(s)
				for _, at := range taken {
					delete(smaller, at)
				}
				again = try(smaller) && part == 1 || again
			}
		}
	}
	for _, at := range s.sites() {
		for _, size := range sizes {
			smaller := maps.Clone(s)
			smaller[at] = size
			if size >= s[at] || try(smaller) {
				break
			}
		}
	}
	return s
}
