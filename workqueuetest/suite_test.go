package workqueuetest

import (
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Cases that are expected to fail write no files, and need not be shrunk.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "100ms"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// broken are queues with one bug each, and the cases that must find it. Other cases may find it, too.
var broken = []struct {
	name   string
	caught []string
	new    func(Config[string]) workqueue.TypedInterface[string]
	newAny func(Config[any]) workqueue.TypedInterface[any]
	// merges declares that the queue has one entry a key, and merges retries.
	merges bool
	shared bool // with Suite.Shared
}{
	{name: "loses adds of held keys", caught: []string{"AddWhileHeld", "GetWaits", "DrainWaitsForKeysAddedWhileHeld", "Model", "Linearizable", "StressEveryAddIsProcessed"},
		new: func(c Config[string]) fifo { return losesAdds{newHolding(c)} }},
	{name: "two workers hold a key", caught: []string{"AddWhileHeld", "GetWaits", "Model", "Linearizable", "StressEveryAddIsProcessed", "StressShutDown"},
		new: func(c Config[string]) fifo { return forgetsHolders{newHolding(c)} }},
	{name: "Done queues keys", caught: []string{"DoneOfUnheldKey", "ModelWithUnmatchedDone", "LinearizableWithUnmatchedDone"},
		new: func(c Config[string]) fifo { return requeues{newHolding(c)} }},
	{name: "last in, first out", caught: []string{"Order", "AddTwice", "Model", "Linearizable"},
		new: func(c Config[string]) fifo {
			return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: &lastInFirstOut{}})
		}},
	{name: "adds later", caught: []string{"AddTwice", "Linearizable"},
		new: func(c Config[string]) fifo { return addsLater{sound(c)} }},
	{name: "Add panics", caught: []string{"Order", "Model", "Linearizable", "StressEveryMethod"},
		new: func(c Config[string]) fifo { return panicsOnAdd{sound(c)} }},
	{name: "drains early", caught: []string{"DrainWaitsForQueuedKeys", "DrainWaitsForHeldKeys", "DrainWaitsForKeysAddedWhileHeld", "StressDrain"},
		new: func(c Config[string]) fifo { return drainsEarly{sound(c)} }},
	{name: "one drain ends", caught: []string{"EveryDrainEnds", "ShutDownEndsDrain", "ShutDownTwice"},
		new: func(c Config[string]) fifo { return drainsOne{sound(c), make(chan struct{}, 1)} }},
	{name: "a drain holds a lock", caught: []string{"NothingWaitsForWorkers"},
		new: func(c Config[string]) fifo { return &locksDuringDrain{whole: sound(c)} }},
	{name: "second ShutDown panics", caught: []string{"ShutDownTwice"},
		new: func(c Config[string]) fifo { return shutsDownOnce{sound(c), make(chan struct{})} }},
	{name: "nothing comes after shutdown", caught: []string{"GetAfterShutDown", "ModelWithShutDown", "Linearizable"},
		new: func(c Config[string]) fifo { return abandons{sound(c)} }},
	{name: "GetContext takes keys along", caught: []string{"GetContextGivesUp", "StressCancel"},
		new: func(c Config[string]) fifo { return takesKeysAlong{sound(c)} }},
	{name: "GetContext ignores its context", caught: []string{"GetContextOfDoneContext", "GetContextGivesUp"},
		new: func(c Config[string]) fifo { return ignoresContext{sound(c)} }},
	{name: "a nanosecond early", caught: []string{"AddAfter", "NeverEarly"},
		new: func(c Config[string]) fifo { return shifts{sound(c), -1} }},
	{name: "a nanosecond late", caught: []string{"AddAfter", "NeverEarly", "AddAfterOrder", "AddAfterSame", "ManyDelays", "ModelWithTies"},
		new: func(c Config[string]) fifo { return shifts{sound(c), 1} }},
	{name: "each delay counts", caught: []string{"AddAfterEarlier", "AddAfterLater", "NoGoroutineAfterShutDown", "Model"},
		new: func(c Config[string]) fifo { return addsEach{sound(c), c.Clock, make(chan struct{}), new(sync.Once)} }},
	{name: "forgets to forget", caught: []string{"Forget"},
		new: func(c Config[string]) fifo { return remembers{sound(c)} }},
	{name: "always runs", caught: []string{"NoGoroutineWhileIdle", "NoTimerWhileIdle"},
		new: func(c Config[string]) fifo { return newAlwaysRuns(c) }},
	{name: "hoards", caught: []string{"ProcessedKeysAreGarbage", "UnhashableKey", "KeyUnequalToItself"},
		new: func(c Config[string]) fifo { return hoards{newHolding(c), make(map[string]bool)} },
		newAny: func(c Config[any]) workqueue.TypedInterface[any] {
			return hoardsAny{soundAny(c).(workqueue.TypedRateLimitingInterface[any]), new([]any)}
		}},
	{name: "ignores the clock", caught: []string{
		"FakeClock", "AddAfter", "DueWhileHeld", "DueWhileQueued", "NeverEarly", "ClockJumpsForward", "ClockJumpsBack", "StressClock",
	},
		new: func(c Config[string]) fifo { c.Clock = clock.RealClock{}; return sound(c) }},
	{name: "jitter", caught: []string{"AddAfterTies", "ModelWithTies"},
		new: func(c Config[string]) fifo { return jitters{sound(c)} }},
	{name: "one entry a key, undeclared", caught: []string{
		"AddOfWaitingKey", "AddAfterNothingOfWaitingKey", "AddAfterOfQueuedKey", "AddAfterOfKeyToComeAgain", "AddOfHeldWaitingKey", "Model",
	},
		new: func(c Config[string]) fifo { return newMerging(c) }},
	{name: "two entries a key", merges: true, caught: []string{
		"AddOfWaitingKey", "AddAfterNothingOfWaitingKey", "AddAfterOfQueuedKey", "AddAfterOfKeyToComeAgain", "AddOfHeldWaitingKey",
		"Model", "ModelWithShutDown", "ModelWithUnmatchedDone", "ModelWithTies",
	},
		new: func(c Config[string]) fifo { return sound(c) }},
	{name: "a delay wins", merges: true, caught: []string{"AddOfWaitingKey", "Model"},
		new: func(c Config[string]) fifo { return delayWins{newMerging(c)} }},
	{name: "a delay puts off", merges: true, caught: []string{"AddAfterOfQueuedKey", "Model"},
		new: func(c Config[string]) fifo { return putsOff{newMerging(c)} }},
	{name: "the last add counts", merges: true, caught: []string{"AddAfterOfKeyToComeAgain", "Model"},
		new: func(c Config[string]) fifo { return lastAddCounts{newMerging(c)} }},
	{name: "the first add counts", merges: true, caught: []string{"AddOfHeldWaitingKey", "Model"},
		new: func(c Config[string]) fifo { return firstAddCounts{newMerging(c)} }},
	{name: "loses delayed adds of held keys", merges: true, caught: []string{"DueWhileHeld", "Model"},
		new: func(c Config[string]) fifo { return losesDelays{newMerging(c)} }},
	{name: "loses keys that need not wait", merges: true, caught: []string{"AddOfWaitingKey", "Model"},
		new: func(c Config[string]) fifo { return losesKeys{newMerging(c)} }},
	{name: "wrong Stats of merged adds", merges: true, caught: []string{"Model"},
		new: func(c Config[string]) fifo { return countsMerged{newMerging(c), new(int)} }},
	{name: "retries at once", merges: true, caught: []string{"AddRateLimitedOfWaitingKey"},
		new: func(c Config[string]) fifo { return retriesAtOnce{newMerging(c)} }},
	{name: "merges, and loses adds of held keys", merges: true, caught: []string{"AddWhileHeld", "Model", "Linearizable", "StressEveryAddIsProcessed"},
		new: func(c Config[string]) fifo { return losesMergedAdds{newMerging(c)} }},
	{name: "only later times count", caught: []string{"AddAfterEarlier", "AddRateLimitedOfWaitingKey", "AddAfterNewFirst", "Model"},
		new: func(c Config[string]) fifo {
			return &latestWins{whole: sound(c), due: make(map[string]time.Time), clock: c.Clock}
		}},
	{name: "no limiter", caught: []string{"AddRateLimited", "AddRateLimitedOfWaitingKey"},
		new: func(c Config[string]) fifo { return unlimited{sound(c)} }},
	{name: "every retry waits", caught: []string{"AddRateLimitedWithoutDelay", "AddAfterWithoutDelay"},
		new: func(c Config[string]) fifo { return alwaysDelays{sound(c)} }},
	{name: "tolerates its limiter", caught: []string{"LimiterPanics"},
		new: func(c Config[string]) fifo { return tolerant{sound(c)} }},
	{name: "adds after shutdown", caught: []string{"AddAfterShutDown", "ModelWithShutDown"},
		new: func(Config[string]) fifo { return newPlain(plain{addsAfterShutDown: true}) }},
	{name: "wakes one getter", caught: []string{"AddWakesGetters", "ShutDownWakesGetters"},
		new: func(Config[string]) fifo { return newPlain(plain{wakesOne: true}) }},
	{name: "keeps waiting keys", caught: []string{"AddAfterShutDownOfWaitingKey", "AddRateLimitedAfterShutDown", "ShutDownDropsWaiting"},
		new: func(c Config[string]) fifo {
			return lateAdder{newPlain(plain{addsAfterShutDown: true}), c.Clock}
		}},
	{name: "drain never gives up", caught: []string{"ShutDownContextGivesUp"},
		new: func(c Config[string]) fifo { return patient{sound(c)} }},
	{name: "metrics of every queue", caught: []string{"MetricsOfUnnamedQueue"},
		new: func(c Config[string]) fifo {
			if c.MetricsProvider != nil {
				c.Name = queueName
			}
			return sound(c)
		}},
	{name: "knows keys by their looks", caught: []string{"KeysOfManyTypes"},
		newAny: func(c Config[any]) workqueue.TypedInterface[any] {
			return looks{soundAny(c), make(map[string]bool)}
		}},
	{name: "grows", caught: []string{"IdleQueueIsGarbage", "MemoryIsGivenBack"},
		new: func(c Config[string]) fifo { return hoards{newHolding(c), make(map[string]bool)} },
		newAny: func(c Config[any]) workqueue.TypedInterface[any] {
			q := soundAny(c)
			neverFreed = append(neverFreed, q)
			return q
		}},
	{name: "not shared", shared: true, caught: []string{"SharedShutDown", "SharedDrain", "SharedAddAfterShutDown"},
		new: func(c Config[string]) fifo { return sound(c) }},
	{name: "wrong Stats", caught: []string{"AddTwice", "Stats", "Model"},
		new: func(c Config[string]) fifo { return countsAll{sound(c), new(atomic.Uint64)} }},
	{name: "wrong depth", caught: []string{"Metrics", "MetricsOfDelays", "MetricsAfterShutDown", "StressEveryMethod"},
		new: func(c Config[string]) fifo {
			if c.MetricsProvider != nil {
				c.MetricsProvider = neverSinks{c.MetricsProvider}
			}
			return sound(c)
		}},
}

var neverFreed []any

// Each bug is found by the cases that are about it, and makes no case hang.
func TestBrokenQueues(t *testing.T) {
	old := patience
	defer func() { patience = old }()
	patience = 3 * time.Second
	t.Setenv("WORKQUEUE_STRESS", "2m") // A case ends when it has found something.
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			s := Suite{New: b.new, NewAny: b.newAny, NoMetrics: b.merges, OneEntry: b.merges, MergesRetries: b.merges, Shared: b.shared}
			for _, name := range b.caught {
				all := cases()
				i := slices.IndexFunc(all, func(c testCase) bool { return c.Name == name })
				if i < 0 {
					t.Errorf("no case is named %q", name)
					continue
				}
				c := all[i]
				began := time.Now()
				o := s.try(t, c)
				// A race needs luck, and so does a random seed.
				for len(o.failures) == 0 && o.skipped == "" && time.Since(began) < 20*time.Second {
					o = s.try(t, c)
				}
				if len(o.failures) == 0 && !((testkit.RaceEnabled || testing.Short()) && name == "MemoryIsGivenBack") {
					t.Errorf("%s finds nothing, skipped: %q", name, o.skipped)
				}
				t.Logf("%s after %v: %.300s", name, time.Since(began), o)
			}
		})
	}
}

// A queue with only the methods of client-go's first layer, which ignores its Config.
func TestPlainQueue(t *testing.T) {
	Suite{
		New:       func(Config[string]) workqueue.TypedInterface[string] { return newPlain(plain{}) },
		NoMetrics: true,
	}.Run(t)
}

// The queue that the broken ones wrap is correct.
func TestSoundQueue(t *testing.T) {
	Suite{
		New:    func(c Config[string]) workqueue.TypedInterface[string] { return newHolding(c) },
		NewAny: soundAny,
		Strict: true,
	}.Run(t)
}

func TestCases(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range Cases() {
		if names[c.Name] || strings.ContainsAny(c.Name, " /_") {
			t.Errorf("name %q is not a name of its own in one word", c.Name)
		}
		names[c.Name] = true
		if !strings.HasSuffix(c.Promise, ".") {
			t.Errorf("%s: promise %q is no sentence", c.Name, c.Promise)
		}
	}
	var caught []string
	for _, b := range broken {
		caught = append(caught, b.caught...)
	}
	for name := range names {
		if !slices.Contains(caught, name) {
			t.Errorf("no broken queue shows that %s can fail", name)
		}
	}
}
