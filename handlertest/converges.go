package handlertest

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

// Environment variables.
const (
	scheduleVariable = "HANDLERTEST"      // a schedule, to repeat a run
	runsVariable     = "HANDLERTEST_RUNS" // how many random runs there are, instead of those that fit into a second
	seedVariable     = "HANDLERTEST_SEED" // the seed of the first of them, instead of 1
)

// shrinkTime is how long the search for a shorter schedule may take.
const shrinkTime = time.Second

// Scenario is what is tested: a program, its world, and what others do meanwhile. The function of Converges, which is called once for each run, sets
// its fields. Either Start or Program is required. The zero values of all other fields make sense.
type Scenario[K comparable] struct {
	// Start is called whenever the process starts, and returns its handler, which a [worker.Pool] runs over a queue. What the handler remembers must be
	// made here: a crash loses it. When Start has returned, the keys of all that the caches have listed are added.
	Start func(p *Process) worker.Handler[K]
	// Program is called instead of Start for a program that runs queues and workers of its own. It returns when p's context has ended.
	Program func(p *Process)
	// Queue makes the queue of a process. Nil means a rate-limiting queue whose delays begin at 5 ms. It may be any of ours or client-go's.
	Queue func() workqueue.TypedRateLimitingInterface[K]
	// Options are those of the pool, but Drain, CancelGrace and KeepQueue. Workers are 2 unless set, and failures are not logged.
	Options worker.Options[K]
	// Shared declares that the queue is one that processes share, such as a redisqueue: it outlives crashes, and leases of keys end while handlers
	// have them. Then the context of the handler ends, and another worker gets the key at once.
	Shared bool
	// Replicas is how many processes run at once. Each has its own memory, caches and queue, or the one queue if Shared is set. Zero means 1.
	Replicas int
	// Measure returns what the runs are compared by when nothing moves any more: usually a part of the truth. It must return the same value for
	// the same truth. Values are compared by [reflect.DeepEqual]. Nil means the values of all objects of all worlds.
	Measure func() any
	// Settle is for how long nothing may change until a run is over. A key that still comes back by itself must also have come twice since the last change.
	// Zero means 10 s, and 20 minutes for a Program or a queue that is not [workqueue.Extended], because these do not say what still waits.
	Settle time.Duration

	run *run[K]
}

// At lets somebody else do something, such as changing a [World], when that much virtual time has passed since the run began.
func (s *Scenario[K]) At(after time.Duration, do func()) {
	s.run.sim.check("the scenario")
	s.run.sim.after(after, "", nil, do)
}

// Tell adds a line to the story, for a world of the program's own: what somebody else does to it.
func (s *Scenario[K]) Tell(format string, args ...any) { s.run.sim.tell(format, args...) }

// TB is the part of [testing.TB] that Converges needs.
type TB interface {
	Helper()
	Name() string
	Fatalf(format string, args ...any)
}

// Converges tests whether the truth that a handler brings about does not depend on the order of things. It runs the scenario undisturbed; then
// with a crash at each point at which the process writes or ends a call; then under random schedules, for about a second. When nothing moves, the outcome must be the one
// of the undisturbed run. It also fails for a handler that panics, that never comes to rest, or that waits for something that never happens, and for
// two calls of one key at once. It reports the first failure, under the shortest schedule that it can find for it, with the story
// of that run and the line that repeats it.
//
// The scenario is called for each run, in a bubble of [testing/synctest]. It must make all that the run needs anew, and must not
// depend on real time, on random numbers or on the order of a map. The random schedules are the same each time. Three environment
// variables change that: HANDLERTEST_RUNS is how many there are, HANDLERTEST_SEED is the seed of the first one, and HANDLERTEST is the only
// schedule to run.
func Converges[K comparable](t TB, scenario func(s *Scenario[K])) {
	t.Helper()
	if v := testkit.PanicOf(func() { testkit.Bubble() }); v == nil {
		t.Fatalf("handlertest: Converges makes bubbles of testing/synctest, and must be called outside of them")
		return
	}
	bubbleT, ok := t.(*testing.T)
	if !ok {
		bubbleT = &testing.T{}
	}
	s := search{play: func(d decider, tell bool) result { return play(bubbleT, scenario, d, tell) }, repeat: "go test -run '" + patternOf(t.Name()) + "'"}
	if report := s.report(); report != "" {
		t.Fatalf("%s", report)
	}
}

// search looks for a schedule under which a scenario fails.
type search struct {
	play        func(d decider, tell bool) result
	repeat      string // the command
	undisturbed any
	runs        int
}

// patternOf returns what go test -run needs, in single quotes, to run the test with that name alone. It has a pattern for each level of subtests.
func patternOf(test string) string {
	levels := strings.Split(test, "/")
	for i, name := range levels {
		levels[i] = "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "'", ".") + "$"
	}
	return strings.Join(levels, "/")
}

// under runs the scenario under a schedule, and compares the outcome.
func (s *search) under(d decider, tell bool) result {
	s.runs++
	res := s.play(d, tell)
	if res.failed == nil && !reflect.DeepEqual(res.outcome, s.undisturbed) {
		res.failed = &failure{"outcome", difference(s.undisturbed, res.outcome)}
	}
	return res
}

// report returns what is wrong with the scenario, or nothing.
func (s *search) report() string {
	first := s.play(newDecider(schedule{}, 0), true)
	if first.failed != nil {
		return fmt.Sprintf("handlertest: the scenario fails undisturbed: %s\n\n%s", first.failed.text, story(first.story))
	}
	s.undisturbed = first.outcome
	if second := s.under(newDecider(schedule{}, 0), false); second.failed != nil {
		return fmt.Sprintf("handlertest: two undisturbed runs differ: the measure, the scenario or the handler depends on something else, "+
			"such as random numbers, the order of a map, or what an earlier run has left\n%s", second.failed.text)
	}
	if text := os.Getenv(scheduleVariable); text != "" {
		fixed, err := parseSchedule(text)
		if err != nil {
			return fmt.Sprintf("handlertest: %s: %v", scheduleVariable, err)
		}
		if s.under(newDecider(fixed, 0), false).failed != nil {
			return s.describe(fixed, "")
		}
		return ""
	}
	for i := range min(first.crashes, 200) {
		for _, down := range []time.Duration{10 * time.Millisecond, 3 * time.Second} {
			fixed := schedule{{crashes, "", i + 1}: down}
			if res := s.under(newDecider(fixed, 0), false); res.failed != nil {
				return s.shrunk(fixed, res.failed, "")
			}
		}
	}
	return s.random()
}

// random runs the scenario with one seed after the other.
func (s *search) random() string {
	seed, err := number(seedVariable, 1)
	runs, err2 := number(runsVariable, 0)
	if err != nil || err2 != nil {
		return fmt.Sprintf("handlertest: %v", max(fmt.Sprint(err), fmt.Sprint(err2)))
	}
	took := time.Second
	if testing.Short() {
		took /= 5
	}
	began := time.Now()
	for i := uint64(0); i < runs || runs == 0 && time.Since(began) < took; i++ {
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
	fails := func(smaller schedule) bool {
		res := s.under(newDecider(smaller, 0), false)
		return res.failed != nil && res.failed.kind == failed.kind
	}
	if !fails(found) {
		return fmt.Sprintf("handlertest: %s\nThis happened once (%srun %d), and not again under the same schedule: the handler or the scenario depends on "+
			"something else, such as random numbers, the order of a map or of goroutines\nschedule: %v", failed.text, which, runs, found)
	}
	began := time.Now() // A run that never comes to rest takes long.
	shortest := shrink(found, func() bool { return time.Since(began) < shrinkTime }, fails)
	return s.describe(shortest, fmt.Sprintf(" (%srun %d; shrunk from %d disturbances)", which, runs, len(found)))
}

// describe returns the failure, the story of the run and the line that repeats it.
func (s *search) describe(fixed schedule, how string) string {
	res := s.under(newDecider(fixed, 0), true)
	text := "it fails no longer"
	if res.failed != nil {
		text = res.failed.text
	}
	return fmt.Sprintf("handlertest: %s\n\n%s\nrepeat: %s='%v' %s%s", text, story(res.story), scheduleVariable, fixed, s.repeat, how)
}

// story returns the lines of a story; the first and the last ones of a long one.
func story(lines []string) string {
	const first, last = 60, 20
	if cut := len(lines) - first - last; cut > 0 {
		lines = slices.Concat(lines[:first], []string{fmt.Sprintf("           ... %d more lines ...", cut)}, lines[first+cut:])
	}
	return strings.Join(lines, "\n") + "\n"
}

// difference describes how two outcomes differ: of texts, only the lines that do.
func difference(want, got any) string {
	w, ok1 := want.(string)
	g, ok2 := got.(string)
	if !ok1 || !ok2 {
		return fmt.Sprintf("the outcome differs from that of the undisturbed run:\n\tundisturbed: %+v\n\there:        %+v", want, got)
	}
	only := func(a, b string) (lines []string) {
		others := strings.Split(b, "\n")
		for line := range strings.SplitSeq(a, "\n") {
			if line != "" && !slices.Contains(others, line) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	text := "the outcome differs from that of the undisturbed run:"
	for _, line := range only(w, g) {
		text += "\n\tmissing: " + line
	}
	for _, line := range only(g, w) {
		text += "\n\textra:   " + line
	}
	return text
}
