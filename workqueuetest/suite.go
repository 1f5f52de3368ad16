package workqueuetest

import (
	"slices"
	"testing"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// Config says how to build the queue for a case. A queue may ignore fields that it has no use for; declare
// that in the [Suite].
type Config[T comparable] struct {
	// Name and MetricsProvider are set if the case checks metrics. A queue without a name must not have any.
	Name            string
	MetricsProvider workqueue.MetricsProvider
	// Clock is the clock for all of the queue's times. It is never nil.
	Clock clock.WithTicker
	// RateLimiter is the limiter of AddRateLimited. It is nil if any limiter will do.
	RateLimiter workqueue.TypedRateLimiter[T]
}

// Suite describes how to build a queue, and what it does not promise. New is required. The zero values of all
// other fields stand for a queue that keeps the whole contract.
type Suite struct {
	// New builds an empty queue. The suite tests it as a [workqueue.ExtendedRateLimiting]. A case that needs
	// what the queue lacks fails, unless Lacks names it.
	New func(Config[string]) workqueue.TypedInterface[string]

	// NewAny builds the same queue for keys of any type. The cases about unhashable keys and about garbage need
	// it.
	NewAny func(Config[any]) workqueue.TypedInterface[any]

	// Check, unless nil, is called while no method of the queue runs. It returns an error if the queue violates
	// one of its own invariants.
	Check func(workqueue.TypedInterface[string]) error

	// IgnoresClock declares that the queue only uses the real clock. Most cases run in a bubble of
	// testing/synctest, where the real clock is virtual too.
	IgnoresClock bool
	// NoMetrics declares that the queue makes no metrics of the MetricsProvider. (The provider of the cases
	// about AddedAt is a [workqueue.StatsProvider], by which the queue must keep times.)
	NoMetrics bool
	// PartialStats declares that only Queued is right in the queue's Stats.
	PartialStats bool
	// OneEntry declares that the queue has one entry per key: of all adds since the key was handed out, the one
	// with the earliest time counts. An Add of a waiting key then cancels its delay, and AddAfter does nothing
	// for a key that is queued or will be queued by Done. In a queue without OneEntry the delay continues, and
	// the key is queued again at its time.
	OneEntry bool
	// PlaceOfAdd declares that a key that is added while a worker holds it has the place in line of that add.
	// A key on hold takes its place at its Done, as every key of other queues does.
	PlaceOfAdd bool
	// MergesRetries declares that AddRateLimited need not ask the limiter if the key waits already. The key
	// waits no longer than the limiter's first answer says.
	MergesRetries bool
	// Shared declares that several processes share the queue, on a server whose clock counts. A shutdown
	// concerns this process alone: Get hands out nothing more, and what is queued or waits stays. Drains wait
	// for the keys that are held, and what is added until then is queued. Keys that are due at the same time
	// come in any order.
	Shared bool

	// Known maps the cases that the queue is known to fail to the reasons. Such a case runs, and fails the test
	// only if the queue passes it.
	Known map[string]string
	// Skip maps the cases that must not run to the reasons. Prefer Known; Skip is for cases whose result differs
	// from run to run.
	Skip map[string]string
	// Lacks maps what the queue lacks to the reasons: [Delays] and the other constants. Cases that need it are
	// skipped. Naming something that no case needs fails the test.
	Lacks map[string]string
}

// What a queue can lack: see [Suite].Lacks.
const (
	Delays   = "AddAfter"
	Limiter  = "AddRateLimited"
	Extended = "the methods of workqueue.Extended"
	Failures = "Fail"
	AnyKeys  = "NewAny"
)

// notIfShared are the cases that a queue with [Suite].Shared cannot pass, by the reason. Those whose names
// begin with Shared take their place.
var notIfShared = map[string][]string{
	"shutdown concerns this process alone: what is queued or waits is for the others": {
		"GetAfterShutDown", "ShutDownEndsDrain", "ShutDownDropsWaiting", "ShutDownContextGivesUp",
		"DrainWaitsForQueuedKeys",
		"DrainWaitsForHeldKeys", "DrainWaitsForKeysAddedWhileHeld", "EveryDrainEnds",
		"AddAfterShutDownOfWaitingKey",
		"ModelWithShutDown", "ModelWithTies", "StressShutDown", "StressDrain", "NothingWaitsForWorkers",
		"DropQueued",
	},
	"a Done may come while the Get of its key is under way: the server has handed it out, and this process " +
		"does not know yet": {
		"LinearizableWithUnmatchedDone",
	},
	"the server does not know which keys are on hold": {"SnapshotsOfAKeyOnHold"},
	"what a handler adds after shutdown is for the other processes": {"AddAfterShutDown",
		"AddRateLimitedAfterShutDown", "FailAfterShutDown"},
	"the clock is the server's": {"FakeClock", "NoTimerWhileIdle",
		"ClockJumpsBack", "ClockJumpsForward"},
	"keys that are due at once come in any order": {"AddAfterTies"},
	"keys are on the server": {"IdleQueueIsGarbage",
		"ProcessedKeysAreGarbage", "MemoryIsGivenBack"},
}

// Run tests whether the queues that newQueue builds keep the whole contract, each case in a subtest. It
// takes a few seconds. Do not run it beside parallel tests: it looks for goroutines that are left.
//
// Use [Suite.Run] for a queue that has fewer methods than a TypedRateLimitingInterface, or keeps only some of
// the contract, and to test keys of other types as well.
func Run(t *testing.T, newQueue func(Config[string]) workqueue.TypedRateLimitingInterface[string]) {
	t.Helper()
	Suite{
		New:   func(c Config[string]) workqueue.TypedInterface[string] { return newQueue(c) },
		Lacks: map[string]string{AnyKeys: "Run builds queues of strings alone: see Suite"},
	}.Run(t)
}

// Run tests the queues that s.New builds, each case in a subtest of its name. A call that blocks forever and
// a panic on the caller's goroutine are failures like others: the remaining cases still run, beside the
// goroutines that block. A panic on one of the queue's own goroutines ends the process, as in any program.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	all := cases()
	for _, names := range []map[string]string{s.Known, s.Skip} {
		for name := range names {
			if !slices.ContainsFunc(all, func(c testCase) bool { return c.Name == name }) {
				t.Errorf("no case is named %q", name)
			}
		}
	}
	lacked, ran := make(map[string]bool), 0
	defer func() {
		for what := range s.Lacks {
			if !lacked[what] && ran == len(all) { // Some cases alone may miss nothing.
				t.Errorf("Lacks names %q, and no case has missed it", what)
			}
		}
	}()
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			t.Helper()
			ran++
			if why, ok := s.Skip[c.Name]; ok {
				t.Skip(why)
			}
			for why, names := range notIfShared {
				if s.Shared && slices.Contains(names, c.Name) {
					t.Skip(why)
				}
			}
			seed := newSeed()
			o := s.try(t, c, seed)
			if o.lacks != "" {
				lacked[o.lacks] = true
			}
			s.report(t, c, seed, o)
		})
	}
}

// report turns the outcome of a case into the result of its subtest.
func (s Suite) report(t *testing.T, c testCase, seed uint64, o outcome) {
	t.Helper()
	why, known := s.Known[c.Name]
	switch {
	case len(o.failures) > 0 && known:
		t.Logf("fails as it is known to (%s):\n%s", why, o)
	case len(o.failures) > 0:
		t.Errorf("promised: %s\nseen: %s\nrepeat: %s=%d go test -run '^%s$'", c.Promise, o, seedVariable, seed,
			t.Name())
	case o.lacks != "":
		if why, named := s.Lacks[o.lacks]; named {
			t.Skipf("the queue lacks %s: %s", o.lacks, why)
		}
		t.Errorf("the queue lacks %s. If that is meant, name it in Suite.Lacks, with the reason", o.lacks)
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
	// Promise is what the case checks.
	Promise string
}

// Cases returns all cases of the suite, in the order in which they run.
func Cases() []Case {
	var list []Case
	for _, c := range cases() {
		list = append(list, c.Case)
	}
	return list
}

type testCase struct {
	Case
	// try runs in a bubble, once on the bubble's clock and once on a fake one, unless unbubbled is set.
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
	all := []testCase{orderCase}
	for _, s := range scripts {
		all = append(all, bubbled(s.name, s.promise, s.try))
	}
	return slices.Concat(all, functionCases, modelCases, linearizableCases, stressCases)
}
