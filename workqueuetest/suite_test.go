package workqueuetest

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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

// Each bug is found by the cases that are about it, and makes no case hang.
func TestBrokenQueues(t *testing.T) {
	if !testkit.Long {
		t.Skip("tries fifty broken queues for a quarter of a minute: set WORKQUEUE_LONG")
	}
	old := testkit.Patience
	defer func() { testkit.Patience = old }()
	testkit.Patience = 3 * time.Second
	t.Setenv("WORKQUEUE_STRESS", "2m") // A case ends when it has found something.
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			s := b.suite()
			for _, name := range b.caught {
				all := cases()
				i := slices.IndexFunc(all, func(c testCase) bool { return c.Name == name })
				if i < 0 {
					t.Errorf("no case is named %q", name)
					continue
				}
				c := all[i]
				began := time.Now()
				o := s.try(t, c, newSeed())
				// A race needs luck, and so does a random seed.
				for len(o.failures) == 0 && o.skipped == "" && time.Since(began) < 20*time.Second {
					o = s.try(t, c, newSeed())
				}
				if len(o.failures) == 0 && !((testkit.RaceEnabled || testing.Short()) && name == "MemoryIsGivenBack") {
					t.Errorf("%s finds nothing, skipped: %q", name, o.skipped)
				}
				t.Logf("%s after %v: %.300s", name, time.Since(began), o)
			}
		})
	}
}

// The seed that a failure is reported with repeats it on every clock.
func TestSeed(t *testing.T) {
	var drawn []uint64
	c := bubbled("", "", func(r *run) { drawn = append(drawn, r.rand(0).Uint64()) })
	Suite{}.try(t, c, 42)
	Suite{}.try(t, c, 42)
	if len(drawn) != 4 || len(slices.Compact(drawn)) != 1 {
		t.Errorf("drew %v, want one number on two clocks, twice", drawn)
	}
}

// A queue with only the methods of client-go's first layer, which ignores its Config.
func TestPlainQueue(t *testing.T) {
	Suite{
		New:       func(Config[string]) workqueue.TypedInterface[string] { return newPlain(plain{}) },
		NoMetrics: true,
		Lacks: map[string]string{
			Delays: "it has one layer", Limiter: "it has one layer", Failures: "it has one layer",
			Extended: "it is plain", AnyKeys: "its keys are strings",
		},
	}.Run(t)
}

// The queue that the broken ones wrap is correct.
func TestSoundQueue(t *testing.T) {
	Suite{
		New:    func(c Config[string]) workqueue.TypedInterface[string] { return newHolding(c) },
		NewAny: soundAny,
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
