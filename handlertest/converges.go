package handlertest

import (
	"regexp"
	"strings"
	"testing"
)

// Converges tests that a handler reaches the same outcome under every disturbance. It runs the scenario
// undisturbed; then with one disturbance each, up to 400 times: a crash at each point at which the process
// writes or ends a call, each call of a client failing, and what others do [Scenario.Sometime] at each
// moment; then 1,000 times under random schedules, or 200 times with -short. When nothing moves, the outcome
// must be the one of the undisturbed run. Whether that is right, [Scenario.Check] says. It also fails for a
// handler that panics, that never comes to rest, that waits for something that never happens, that still
// fails when nothing moves any more, or that is never called; and for what [Scenario.Always] forbids. It
// reports the first failure, under the shortest schedule that it can find for it, with the story of that run
// and the line that repeats it.
//
// The scenario is called for each run, in a bubble of [testing/synctest], so Converges is called outside of
// them. It must make all that the run needs anew, and must not depend on real time, on random numbers or on
// the order of a map. The random schedules are the same each time. Three environment variables change that:
// HANDLERTEST_RUNS is how many there are, HANDLERTEST_SEED is the seed of the first one, and HANDLERTEST is
// the only schedule to run.
func Converges[K comparable](t *testing.T, scenario func(s *Scenario[K])) {
	t.Helper()
	if report := Find(t, scenario); report != "" {
		t.Fatal(report)
	}
}

// Find is Converges for tests that want the report: those of another framework, or of a mistake that must be
// found. It returns "" if it finds nothing, and does not fail t.
func Find[K comparable](t *testing.T, scenario func(s *Scenario[K])) (report string) {
	t.Helper()
	return find(t, t.Name(), t.Logf, scenario)
}

func find[K comparable](t *testing.T, name string, log func(format string, args ...any),
	scenario func(s *Scenario[K])) (report string) {
	s := search{log: log, repeat: " go test -run '" + patternOf(name) + "'"}
	s.play = func(d decider, telling bool, how string) result { return play(t, scenario, d, telling, how) }
	return s.report()
}

// patternOf returns what go test -run needs, in single quotes, to run the test with that name alone. It has a
// pattern for each level of subtests.
func patternOf(test string) string {
	levels := strings.Split(test, "/")
	for i, name := range levels {
		levels[i] = "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "'", ".") + "$"
	}
	return strings.Join(levels, "/")
}
