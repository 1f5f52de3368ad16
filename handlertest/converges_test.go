package handlertest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

// with makes a scenario of a handler for an app that exists.
func with(h func(p process, apps client) handler) func(s scenario) {
	return func(s scenario) {
		apps := apps(s)
		apps.Set("web", app{Spec: 1})
		s.Start = func(p process) handler { return h(p, apps.Client(p)) }
	}
}

func wantReport(t *testing.T, report string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(report, word) {
			t.Errorf("the report does not say %q:\n%s", word, report)
		}
	}
}

// What is wrong with a test is said as clearly as what is wrong with a handler.
func TestBadInput(t *testing.T) {
	nothing := func(context.Context, string) error { return nil }
	runs := 0
	for _, c := range []struct {
		name     string
		scenario func(s scenario)
		words    []string
	}{
		{"writes forever, slowly", with(func(_ process, apps client) handler {
			return func(ctx context.Context, key string) error {
				web, _ := apps.Cached(key)
				web.Value.Spec++
				if _, err := apps.Update(ctx, web); err != nil {
					return err
				}
				return worker.RequeueAfter(time.Hour)
			}
		}), []string{"the scenario fails undisturbed", "it never comes to rest"}},
		{"undone by others", func(s scenario) {
			apps := apps(s)
			s.Others("the other one", func() { apps.Set("web", app{}) })
			s.Start = func(p process) handler { return apps.Client(p).Delete }
		}, []string{"the scenario fails undisturbed", "it never comes to rest", "still writes"}},
		{"panic", with(func(process, client) handler {
			return func(context.Context, string) error { panic("ouch") }
		}), []string{"web: the handler panics: ouch", "converges_test.go"}},
		{"Goexit", with(func(process, client) handler {
			return func(context.Context, string) error { runtime.Goexit(); return nil }
		}), []string{"web: the handler has ended its goroutine"}},
		{"wait", with(func(process, client) handler {
			events := make(chan string, 1)
			return func(context.Context, string) error {
				events <- "one"
				sendAnother(events)
				return nil
			}
		}), []string{"web: the handler waits, and for 1h0m0s nothing has ended its wait", "for room in a channel",
			"record.NewFakeRecorder", "sendAnother"}},
		{"wait of Start", func(s scenario) {
			s.Start = func(p process) handler { <-p.Context().Done(); return nothing }
		}, []string{"the process waits, and for 1h0m0s nothing has ended its wait"}},
		{"goroutine that is left", func(s scenario) {
			apps(s).Set("web", app{})
			s.Start = func(process) handler {
				go func() { select {} }()
				return nothing
			}
		}, []string{"goroutines are left", "converges_test.go"}},
		{"fatal", with(func(process, client) handler {
			return func(context.Context, string) error { return worker.Fatal(errors.New("no disk")) }
		}), []string{"the workers have ended: no disk"}},
		{"bad options", func(s scenario) {
			s.Options.Workers = -1
			s.Start = func(process) handler { return nothing }
		}, []string{"Options.Workers is negative"}},
		{"panic of Start", func(s scenario) {
			s.Start = func(process) handler { panic("ouch") }
		}, []string{"the process panics: ouch"}},
		{"no handler", func(s scenario) {
			s.Start = func(process) handler { return nil }
		}, []string{"Start has returned no handler"}},
		{"panic of the scenario", func(scenario) { panic("ouch") }, []string{"panic: ouch"}},
		{"nothing to start", func(scenario) {}, []string{"a Scenario needs Start"}},
		{"replicas", func(s scenario) {
			s.Replicas, s.Start = -1, func(process) handler { return nothing }
		}, []string{"Replicas is negative: -1"}},
		{"the queue of no process", func(s scenario) { s.QueueOf(nil) }, []string{"QueueOf needs the Process"}},
		{"keys of another type", func(s scenario) { handlertest.NewWorld[int, int](s, "numbers", nil) },
			[]string{`NewWorld("numbers") needs a function`, "int", "string"}},
		{"random measure", func(s scenario) {
			apps(s).Set("web", app{})
			s.Start, s.Measure = func(process) handler { return nothing }, func() any { return rand.Uint64() }
		}, []string{"two undisturbed runs differ", "the measure"}},
		{"memory of an earlier run", func(s scenario) {
			apps := apps(s)
			runs++
			apps.Set("web", app{Spec: runs})
			s.Start = func(process) handler { return nothing }
		}, []string{"two undisturbed runs differ"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := handlertest.Find(t, c.scenario)
			wantReport(t, found, append(c.words, "handlertest: ")...)
		})
	}
}

func sendAnother(events chan<- string) { events <- "two" }

// What the example's test prints.
func TestExample(t *testing.T) {
	if got := handlertest.Find(t, wantedPods); got != exampleReport {
		t.Errorf("the report is\n%s", got)
	}
}

const exampleReport = `handlertest: the outcome differs from that of the undisturbed run:
	undisturbed: 2
	here:        3

       0s  somebody: sets sets/web@1 = 2
       0s  the process: starts
       0s  the process: its cache lists sets/web@1
       0s  the process: its cache lists no pods
      1ms  web: the handler begins
      2ms  web: creates pods/101 = web
      3ms  the process: its cache shows pods/101@2
      3ms  web: creates pods/102 = web
      3ms  web: the handler returns nil
      3ms  the process: its cache lags: it shows pods/102@3 3ms later
      4ms  web: the handler begins
      5ms  web: creates pods/103 = web
      5ms  web: the handler returns nil
      7ms  the process: its cache shows pods/102@3
      7ms  the process: its cache shows pods/103@4
      8ms  web: the handler begins
      8ms  web: the handler returns nil
      9ms  web: the handler begins
      9ms  web: the handler returns nil

undisturbed, from where the stories part:
      4ms  the process: its cache shows pods/102@3
      4ms  web: the handler begins
      4ms  web: the handler returns nil
      5ms  web: the handler begins
      5ms  web: the handler returns nil

repeat: HANDLERTEST='lag:pods#2=3ms' go test -run '^TestExample$'  # seed 7, run 22; shrunk from 5 disturbances`

func TestInsideBubble(t *testing.T) {
	var found string
	synctest.Test(t, func(t *testing.T) { found = handlertest.Find(t, func(scenario) {}) })
	wantReport(t, found, "must be called outside of them")
}

func TestClientOfAnEarlierRun(t *testing.T) {
	var c client
	found := handlertest.Find(t, func(s scenario) {
		apps := apps(s)
		apps.Set("web", app{})
		s.Start = func(p process) handler {
			if c == nil {
				c = apps.Client(p)
			}
			return func(ctx context.Context, key string) error {
				_, err := c.Get(ctx, key)
				return err
			}
		}
	})
	wantReport(t, found, "is used after its run")
	testkit.WantPanic(t, "Get", func() { _, _ = c.Get(t.Context(), "a") }, "is used after its run")
}

// A handler whose only mistake shows now and then is not shrunk, but reported.
func TestNotDeterministic(t *testing.T) {
	runs := 0
	found := handlertest.Find(t, func(s scenario) {
		apps := apps(s)
		apps.Set("db", app{})
		if runs++; runs == 20 {
			apps.Set("web", app{})
		}
		s.Start = func(process) handler { return func(context.Context, string) error { return nil } }
	})
	wantReport(t, found, "This happened once (seed ", "and not again under the same schedule",
		"extra:   apps/web")
}

// At a crash the process does nothing more: it writes nothing in deferred calls
// or in goroutines of its own, and its contexts end.
func TestCrashEndsEverything(t *testing.T) {
	t.Setenv("HANDLERTEST", "crash#1=1s")
	var contexts atomic.Int32
	found := handlertest.Find(t, func(s scenario) {
		apps := apps(s)
		apps.Set("web", app{})
		starts := 0
		s.Measure = func() any { return len(apps.All()) }
		s.Start = func(p process) handler {
			starts++
			first := starts == 1
			c := apps.Client(p)
			return func(ctx context.Context, key string) error {
				if key != "web" || !first {
					return nil
				}
				context.AfterFunc(ctx, func() { contexts.Add(1) })
				context.AfterFunc(p.Context(), func() { contexts.Add(1) })
				go func() {
					time.Sleep(100 * time.Millisecond)
					_, _ = c.Create(context.Background(), "by a goroutine", app{})
				}()
				defer func() { _, _ = c.Create(context.Background(), "by a deferred call", app{}) }()
				defer func() { _ = recover() }()
				_, err := c.Create(ctx, "by the handler", app{})
				return err
			}
		}
	})
	wantReport(t, found, "undisturbed: 4", "here:        2", "creates apps/by the handler",
		"crashes after that write; it starts again after 1s",
		"1.002s  the process: starts", "its cache lists apps/by the handler@2 apps/web@1")
	disturbed, _, _ := strings.Cut(found, "undisturbed, from")
	if strings.Contains(disturbed, "creates apps/by a") {
		t.Errorf("the process does something after its crash:\n%s", found)
	}
	if contexts.Load() < 4 {
		t.Error("a context has not ended")
	}
}

func TestEnvironment(t *testing.T) {
	for variable, value := range map[string]string{"HANDLERTEST": "crash", "HANDLERTEST_RUNS": "many",
		"HANDLERTEST_SEED": "-1"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			found := handlertest.Find(t, with(func(process, client) handler {
				return func(context.Context, string) error { return nil }
			}))
			wantReport(t, found, variable, value)
		})
	}
	// The line that a report ends with repeats the report.
	scenario := func(s scenario) { wrongHandlers[0].scenario(s, false) }
	first := handlertest.Find(t, scenario)
	_, line, _ := strings.Cut(first, "repeat: HANDLERTEST='")
	schedule, command, _ := strings.Cut(line, "'")
	wantReport(t, command, "go test -run '^TestEnvironment$'")
	t.Setenv("HANDLERTEST", schedule)
	second := handlertest.Find(t, scenario)
	cut := func(report string) string { return report[:strings.LastIndex(report, "repeat:")] }
	if cut(first) != cut(second) {
		t.Errorf("the report\n%s\nis repeated as\n%s", first, second)
	}
	t.Setenv("HANDLERTEST", "slow:web#9999=3ms") // Nothing is disturbed.
	handlertest.Converges(t, scenario)
}

// The line repeats the test alone, and also one of a table whose name has characters that mean something in a
// pattern or to the shell: go test says "ok" if nothing matches.
func TestRepeatOfSubtest(t *testing.T) {
	found, _ := handlertest.FindNamed(t, "TestMyHandler/web+db_(it's_slow)/2", func(s scenario) { wrongHandlers[0].scenario(s, false) })
	wantReport(t, found, `go test -run '^TestMyHandler$/^web\+db_\(it.s_slow\)$/^2$'`)
}

// Every answer of package worker works.
func TestAnswers(t *testing.T) {
	if os.Getenv("HANDLERTEST_RUNS") == "" {
		t.Setenv("HANDLERTEST_RUNS", "100")
	}
	handlertest.Converges(t, func(s scenario) {
		apps := apps(s)
		for i := range 8 {
			apps.Set(fmt.Sprint("app-", i), app{Spec: i})
		}
		s.Options.MaxRetries = 3
		s.Start = func(p process) handler {
			c := apps.Client(p)
			return func(ctx context.Context, key string) error {
				o, err := c.Get(ctx, key)
				if err != nil {
					return err
				}
				if o.Value.Status < 3 {
					o.Value.Status++
					_, err = c.Update(ctx, o)
				}
				switch {
				case err != nil:
					return worker.RequeueAfter(time.Second)
				case o.Value.Spec == 1:
					return worker.RequeueAfter(time.Minute)
				case o.Value.Spec == 2:
					return worker.Every(10 * time.Minute)
				case o.Value.Spec == 3:
					return worker.Terminal(errors.New("no"))
				case o.Value.Spec == 4:
					return errors.New("fails until it is given up")
				case o.Value.Spec == 5:
					return worker.RetryAfter(errors.New("busy"), time.Second)
				case o.Value.Spec == 6 && o.Value.Status < 3:
					<-worker.CallOf(ctx).UntilAdded().Done()
					return worker.ErrAdded
				}
				return nil
			}
		}
	})
}
