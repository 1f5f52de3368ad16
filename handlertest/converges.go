package handlertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// How long the random runs, the runs with a crash at each point, and the search for a shorter schedule may take, each. On a machine that has no time
// there are still leastRuns, unless they take ten times as long.
const leastRuns = 20

var searchTime = time.Second

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
	// Options are the pool's options. Drain, CancelGrace and KeepQueue are ignored. Workers are 2 unless set, and failures are not logged.
	Options worker.Options[K]
	// Shared declares that the queue is one that processes share, such as a redisqueue: it outlives crashes, and leases of keys end while handlers
	// have them. Then the context of the handler ends, and another worker gets the key at once.
	Shared bool
	// Replicas is how many processes run at once. Each has its own memory, caches and queue, or the one queue if Shared is set. Zero means 1.
	Replicas int
	// Measure returns what must be equal in all runs, read at the end of each: usually a part of the truth. Leave out what may differ: times (also virtual
	// ones, such as a condition's), made-up names, counters of tries. It is also the place to check what the outcome is: Converges only compares.
	// Values are compared by [reflect.DeepEqual]. Nil means the values of all objects of all worlds, which also are equal if their texts are.
	Measure func() any
	// Settle is how long nothing must change until a run ends. A key that still comes back by itself must also have come twice since, undisturbed.
	// If something outside the Worlds becomes ready by time, set Settle longer than that, or let At make it ready. Zero means 10 s, and 20 minutes for a Program or a queue that is not [workqueue.Extended], because these do not say what still waits.
	Settle time.Duration

	run *run[K]
}

// At calls do, in the name of somebody else, who changes a [World] for example, after that much virtual time since the run began.
func (s *Scenario[K]) At(after time.Duration, do func()) {
	s.run.sim.check("the scenario")
	s.run.sim.after(after-time.Since(s.run.sim.began), "", nil, do)
}

// Tell adds a line to the story, for a world of the program's own: what somebody else does to it.
func (s *Scenario[K]) Tell(format string, args ...any) { s.run.sim.tell(format, args...) }

// TB is the part of [testing.TB] that Converges needs.
type TB interface {
	Helper()
	Name() string
	Fatalf(format string, args ...any)
}

// Converges tests that a handler reaches the same outcome whatever happens in between. It runs the scenario undisturbed; then with a crash at each of
// the first 200 points at which the process writes or ends a call, for at most about a second; then under random schedules, for about a second (on a slow machine up to ten each). When nothing moves, the
// outcome must be the one of the undisturbed run. It does not test what the outcome is: check that in Measure. It also fails for a handler that panics, that never comes to rest, that waits
// for something that never happens, or that still fails when nothing moves any more, and for two calls of one key at once. It reports the first failure, under the shortest schedule that it can find for it, with the story
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
	s := search{play: func(d decider, tell bool) result { return play(bubbleT, scenario, d, tell) }, log: func(string, ...any) {}}
	if name := t.Name(); strings.HasPrefix(name, "Test") && !strings.Contains(name, " ") { // Those of other frameworks match no test of go test.
		s.repeat = " go test -run '" + patternOf(name) + "'"
	}
	if logger, ok := t.(interface{ Logf(string, ...any) }); ok {
		s.log = logger.Logf
	}
	if report := s.report(); report != "" {
		t.Fatalf("%s", report)
	}
}

// search looks for a schedule under which a scenario fails.
type search struct {
	play        func(d decider, tell bool) result
	repeat      string // the command, after a space
	log         func(format string, args ...any)
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
	switch {
	case res.failed != nil:
	case res.hangs:
		s.log("handlertest: a run hangs after its crash, and is not judged: the crash has ended a goroutine that held a sync.Mutex, RWMutex or Once without "+
			"a deferred Unlock, for which others of that process wait\nschedule: %v", res.used)
	case !same(s.undisturbed, res.outcome):
		res.failed = &failure{"outcome", difference(s.undisturbed, res.outcome)}
	}
	return res
}

// same reports whether two outcomes are equal. Values whose texts are the same are, such as an empty slice and nil.
func same(a, b any) bool {
	x, ok1 := a.(objects)
	y, ok2 := b.(objects)
	if !ok1 || !ok2 {
		return reflect.DeepEqual(a, b)
	}
	return maps.EqualFunc(x, y, func(v, w any) bool { return reflect.DeepEqual(v, w) || plain(v) == plain(w) })
}

func plain(pointer any) string { return fmt.Sprintf("%+v", reflect.ValueOf(pointer).Elem()) }

// text returns the text of the value that pointer points to, without addresses.
func text(pointer any) string {
	text := plain(pointer)
	if strings.Contains(text, "0x") {
		if data, err := json.Marshal(pointer); err == nil {
			return string(data)
		}
	}
	return text
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
		res := s.under(newDecider(fixed, 0), false)
		if res.failed != nil {
			return s.describe(fixed, res.failed, "")
		}
		for _, at := range fixed.sites() {
			if _, ok := res.used[at]; !ok {
				s.log("handlertest: the run never comes to %v: the handler or the scenario has changed since that schedule was found", at)
			}
		}
		return ""
	}
	goOn := within(searchTime)
	for i := range min(first.crashes, 200) {
		if !goOn() {
			break
		}
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
	if err := errors.Join(err, err2); err != nil {
		return fmt.Sprintf("handlertest: %v", err)
	}
	took := searchTime
	if testing.Short() {
		took /= 5
	}
	goOn := within(took)
	for i := uint64(0); i < runs || runs == 0 && goOn(); i++ {
		if res := s.under(newDecider(nil, seed+i), false); res.failed != nil {
			return s.shrunk(res.used, res.failed, fmt.Sprintf("seed %d, ", seed+i))
		}
	}
	return ""
}

// within returns a function that returns true for about that long, and leastRuns times also on a machine that has no time.
func within(took time.Duration) func() bool {
	began, n := time.Now(), 0
	return func() bool {
		n++
		took := took
		if n <= leastRuns {
			took *= 10
		}
		return time.Since(began) < took
	}
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
	if failed.kind == "hang" { // It takes long.
		return s.describe(found, failed, fmt.Sprintf("%srun %d", which, runs))
	}
	fails := func(smaller schedule) bool {
		res := s.under(newDecider(smaller, 0), false)
		return res.failed != nil && res.failed.kind == failed.kind
	}
	if !fails(found) {
		return fmt.Sprintf("handlertest: %s\nThis happened once (%srun %d), and not again under the same schedule: the handler or the scenario depends on "+
			"something else, such as random numbers, the order of a map or of goroutines\nschedule: %v", failed.text, which, runs, found)
	}
	shortest := shrink(found, within(searchTime), fails) // A run that never comes to rest takes long.
	how := fmt.Sprintf("%srun %d", which, runs)
	if len(shortest) < len(found) {
		how += fmt.Sprintf("; shrunk from %d disturbances", len(found))
	}
	return s.describe(shortest, failed, how)
}

// describe returns the failure, the story of the run and the line that repeats it. A shell takes what follows # for a comment.
func (s *search) describe(fixed schedule, failed *failure, how string) string {
	res, note := s.under(newDecider(fixed, 0), true), ""
	if res.failed != nil {
		failed = res.failed
	} else {
		note = "\nIt did not fail again when it was run for its story: the handler depends on something random."
	}
	line := fmt.Sprintf("repeat: %s='%v'%s", scheduleVariable, fixed, s.repeat)
	if len(fixed) == 0 {
		line = "It fails without a disturbance, too, now and then."
	} else if how != "" {
		line += "  # " + how
	}
	return fmt.Sprintf("handlertest: %s%s\n\n%s\n%s", failed.text, note, story(res.story), line)
}

// story returns the lines of a story; the first and the last ones of a long one.
func story(lines []string) string {
	const first, last = 60, 20
	if cut := len(lines) - first - last; cut > 0 {
		lines = slices.Concat(lines[:first], []string{fmt.Sprintf("           ... %d more lines ...", cut)}, lines[first+cut:])
	}
	return strings.Join(lines, "\n") + "\n"
}

// difference describes how two outcomes differ: of texts, and of the default measure, only the lines that do.
func difference(want, got any) string {
	if w, ok := want.(objects); ok {
		want, got = lines(w), lines(got.(objects))
	}
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

// lines returns the default measure as a text.
func lines(all objects) (lines string) {
	for _, label := range slices.Sorted(maps.Keys(all)) {
		lines += label + " = " + text(all[label]) + "\n"
	}
	return lines
}
