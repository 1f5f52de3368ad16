package workqueuetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// Config is what a case wants of the queue that it is about to try. A queue that has no use for a
// field leaves it alone; see [Suite] for how to say so.
type Config[T comparable] struct {
	// Name and MetricsProvider are set if the case looks at metrics. Without a name there shall be none.
	Name            string
	MetricsProvider workqueue.MetricsProvider
	// Clock is where all times of the queue come from. It is never nil.
	Clock clock.WithTicker
	// RateLimiter is what AddRateLimited asks. It is nil if the case does not care.
	RateLimiter workqueue.TypedRateLimiter[T]
}

// Suite tells how to build a queue, and what it does not promise. New is required; the zero values of
// all others stand for a queue that keeps the whole contract.
type Suite struct {
	// New builds an empty queue. A queue that also has AddAfter, AddRateLimited or the methods of
	// [workqueue.Extended] is tried for those too; cases that need what it lacks are skipped.
	New func(Config[string]) workqueue.TypedInterface[string]

	// NewAny builds the same queue for keys of any type, for the cases about keys that cannot be kept
	// and about garbage. They are skipped if it is nil.
	NewAny func(Config[any]) workqueue.TypedInterface[any]

	// Check, unless nil, is called when a queue is at rest, with no call under way. It returns an error
	// if the inside of the queue is not as its author knows it should be.
	Check func(workqueue.TypedInterface[string]) error

	// IgnoresClock is the mark of a queue that lives on the real clock alone. In the bubbles of
	// testing/synctest, where most cases run, that one is virtual too.
	IgnoresClock bool
	// NoMetrics is the mark of a queue that reports to no MetricsProvider.
	NoMetrics bool
	// PartialStats is the mark of a queue whose Stats knows no more than how many keys are queued.
	PartialStats bool
	// OneEntry is the mark of a queue that has one entry a key: of all adds since the key was handed out, the
	// one whose time is the earliest counts. So an Add of a waiting key cancels its delay, and an AddAfter
	// of a key that is queued, or is to come again when its worker is Done, does nothing. Without it a
	// delay goes on beside that, and the key comes again at its time.
	OneEntry bool
	// MergesRetries is the mark of a queue that need not ask its limiter again when AddRateLimited is
	// called for a key that waits already: it comes at the limiter's first answer or, if that is earlier, at
	// another one.
	MergesRetries bool

	// Known are the names of cases that the queue is known to fail, with the reason. Such a case is
	// run, and fails the test only if the queue passes it.
	Known map[string]string
	// Skip are the names of cases that are not run, with the reason. It is for those that end
	// differently from run to run; prefer Known.
	Skip map[string]string
	// Strict makes a case that is skipped because the queue lacks something fail instead.
	Strict bool
}

// Run tries the queues that newQueue builds for the whole contract, each case in a subtest. It takes
// some seconds, most of them in the cases whose names begin with Stress: the environment variable
// WORKQUEUE_STRESS, a duration like 1m, says how long those take together; a second if it is not set.
//
// Use [Suite.Run] for a queue with less than a TypedRateLimitingInterface, for one that keeps some of
// the contract only, and to have keys of other types tried as well.
func Run(t *testing.T, newQueue func(Config[string]) workqueue.TypedRateLimitingInterface[string]) {
	t.Helper()
	Suite{New: func(c Config[string]) workqueue.TypedInterface[string] { return newQueue(c) }}.Run(t)
}

// Run tries the queues that s.New builds, each case in a subtest of its name. A failing case does not
// keep the others from being run: a call that blocks for ever and a panic on the caller's goroutine are
// failures like others. (A panic on a goroutine of the queue's own ends the process, as in any program.)
func (s Suite) Run(t *testing.T) {
	t.Helper()
	all := cases()
	for name := range merged(s.Known, s.Skip) {
		if _, ok := find(all, name); !ok {
			t.Errorf("no case is named %q", name)
		}
	}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			t.Helper()
			if why, ok := s.Skip[c.Name]; ok {
				t.Skip(why)
			}
			s.report(t, c, s.try(t, c))
		})
	}
}

// report makes the test's result of what a case has come to.
func (s Suite) report(t *testing.T, c testCase, o outcome) {
	t.Helper()
	why, known := s.Known[c.Name]
	switch {
	case len(o.failures) > 0 && known:
		t.Logf("fails as it is known to (%s):\n%s", why, o)
	case len(o.failures) > 0:
		t.Errorf("promised: %s\nseen: %s\nrepeat: %s=%d go test -run '^%s$'", c.Promise, o, seedVariable, o.seed, t.Name())
	case o.lacking && s.Strict:
		t.Errorf("%s, and the suite is strict", o.skipped)
	case o.skipped != "":
		t.Skip(o.skipped)
	case known:
		t.Errorf("the queue is known to fail this (%s), and passes it", why)
	}
}

// Case is one of the cases of the suite.
type Case struct {
	// Name is the name of its subtest.
	Name string
	// Promise is what the queue has to keep.
	Promise string
}

// Cases returns all cases of the suite, in the order in which they are run.
func Cases() []Case {
	var list []Case
	for _, c := range cases() {
		list = append(list, c.Case)
	}
	return list
}

// testCase is a case and how to try it.
type testCase struct {
	Case
	// try is run in a bubble, once on its real clock and once on a fake one, unless unbubbled is set.
	try       func(*run)
	unbubbled bool
}

func bubbled(name, promise string, try func(*run)) testCase {
	return testCase{Case: Case{name, promise}, try: try}
}

func unbubbled(name, promise string, try func(*run)) testCase {
	return testCase{Case: Case{name, promise}, try: try, unbubbled: true}
}

func cases() []testCase {
	var all []testCase
	for _, some := range [][]testCase{
		fifoCases(), getCases(), shutDownCases(), drainCases(), delayCases(), scriptCases(), clockCases(),
		limiterCases(), keyCases(), metricsCases(), idleCases(), memoryCases(), modelCases(), linearizableCases(), stressCases(),
	} {
		all = append(all, some...)
	}
	return all
}

func find(all []testCase, name string) (testCase, bool) {
	for _, c := range all {
		if c.Name == name {
			return c, true
		}
	}
	return testCase{}, false
}

func merged(maps ...map[string]string) map[string]string {
	all := make(map[string]string)
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// outcome is what a case has come to.
type outcome struct {
	failures []string
	skipped  string // why, if it could not be tried
	lacking  bool   // because the queue lacks something
	seed     uint64
}

func (o outcome) String() string {
	if len(o.failures) == 1 {
		return o.failures[0]
	}
	var b strings.Builder
	for i, f := range o.failures {
		fmt.Fprintf(&b, "\n%d. %s", i+1, f)
	}
	return b.String()
}
