package handlertest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

// A scenario that tests nothing does not pass.
func TestNoHandlerCalled(t *testing.T) {
	found := handlertest.Find(t, func(s scenario) {
		handlertest.NewWorld(s, "pods", nothing).Set("web", app{})
		s.Start = func(process) handler { return func(context.Context, string) error { return nil } }
	})
	wantReport(t, found, "no handler was called, so nothing is tested", "a function that returns keys")
}

// Others have no process, and their functions take no time.
func TestClientOfOthers(t *testing.T) {
	for name, use := range map[string]func(s scenario, get func()){
		"At":      func(s scenario, get func()) { s.At(time.Second, get) },
		"Measure": func(s scenario, get func()) { s.Measure = func() any { get(); return nil } },
		"Always": func(s scenario, get func()) {
			s.Always("is there", func() error {
				if time.Now().Nanosecond() > 0 {
					get()
				}
				return nil
			})
		},
	} {
		find := func(t *testing.T, ticks bool) {
			found := handlertest.Find(t, func(s scenario) {
				var c client
				with(func(p process, apps client) handler {
					c = apps
					if ticks {
						go func() {
							for p.Context().Err() == nil {
								time.Sleep(time.Minute)
							}
						}()
					}
					return setsStatus(p, apps)
				})(s)
				use(s, func() { _, _ = c.Get(context.Background(), "web") })
			})
			wantReport(t, found, "a Client or a Process is used by At, Sometime, Others, Measure, Check or Always",
				"use the World", "converges_scenario_test.go")
		}
		t.Run(name, func(t *testing.T) { find(t, false) })
		t.Run(name+" beside a ticker", func(t *testing.T) { find(t, true) })
	}
}

// The obvious measure is a right one: versions differ from run to run.
func TestMeasureOfAll(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "100")
	handlertest.Converges(t, func(s scenario) {
		apps, others := apps(s), handlertest.NewWorld[string, app](s, "others", nil)
		apps.Set("web", app{Spec: 1})
		s.Sometime("sets another", func() { others.Set("db", app{}) })
		s.Measure = func() any { return fmt.Sprint(apps.All(), others.All()) }
		s.Start = func(p process) handler {
			set, others := setsStatus(p, apps.Client(p)), others.Client(p)
			return func(ctx context.Context, key string) error {
				if _, ok := others.Cached(key); ok {
					return nil
				}
				return set(ctx, key)
			}
		}
	})
}

// twoMistakes has a mistake that a crash shows, and another that a lag shows.
func twoMistakes(s scenario) {
	apps, pods := apps(s), pods(s)
	apps.Set("web", app{Spec: 2})
	s.Measure = func() any {
		web, _ := apps.Get("web")
		return fmt.Sprintf("%d pods\nnote %s", len(pods.All()), web.Note)
	}
	s.Start = func(p process) handler {
		apps, pods := apps.Client(p), pods.Client(p)
		memory := ""
		return func(ctx context.Context, key string) error {
			web, _ := apps.Cached(key)
			for n := len(owned(pods, key)); n < web.Value.Spec; n++ {
				memory += "+"
				if _, err := pods.Create(ctx, fmt.Sprint(key, time.Now().UnixNano()), app{Owner: key}); err != nil {
					return err
				}
			}
			if web.Value.Note != "" {
				return nil
			}
			web.Value.Note = memory
			_, err := apps.Update(ctx, web)
			return ignoring(err, handlertest.ErrConflict)
		}
	}
}

// A known mistake does not hide another one.
func TestAcceptAndWithout(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "300")
	found := handlertest.Find(t, twoMistakes)
	wantReport(t, found, "the outcome differs")
	found = handlertest.Find(t, func(s scenario) {
		twoMistakes(s)
		s.Accept("note ", "it is only a note")
	})
	wantReport(t, found, "missing: 2 pods", "extra:   3 pods")
	report, log := handlertest.FindNamed(t, "TestMyHandler", func(s scenario) {
		twoMistakes(s)
		s.Accept("note ", "it is only a note")
		s.Accept(" pods", "the cluster is large enough")
		s.Accept("no such thing", "for the test")
		s.Check(func() error { return errors.New("no translation") })
		s.Accept("no translation", "it shows undisturbed, and hides nothing either")
		began := time.Now()
		s.Always("calm", func() error {
			if time.Since(began) < 3*time.Millisecond {
				return errors.New("too early")
			}
			return nil
		})
		s.Accept("too early", "it ends by itself")
	})
	if report != "" {
		t.Error(report)
	}
	wantReport(t, log, `runs had a failure that is accepted: "note " (it is only a note)`,
		`no run had the failure that is accepted: "no such`,
		`runs had a failure that is accepted: "no translation" (it shows undisturbed`,
		`runs had a failure that is accepted: "too early"`)
	handlertest.Converges(t, func(s scenario) {
		twoMistakes(s)
		s.Without(handlertest.Crash, handlertest.FailedCall, handlertest.LostAnswer, handlertest.Conflict)
		s.Without(handlertest.Lag, handlertest.Relist, handlertest.Slow, handlertest.Late, handlertest.Again)
	})
}

// The undisturbed run may be the wrong one, so there are both stories: from where they part, and only of the
// keys that differ.
func TestBothStories(t *testing.T) {
	t.Setenv("HANDLERTEST", "slow:web#1=30ms relist:apps#1=30ms")
	found := handlertest.Find(t, func(s scenario) {
		apps := apps(s)
		for _, name := range []string{"web", "db", "dns"} {
			apps.Set(name, app{})
		}
		s.Start = func(p process) handler {
			c, began := apps.Client(p), time.Now()
			return func(ctx context.Context, key string) error {
				o, err := c.Get(ctx, key)
				if o.Value.Status = 1; key == "web" && time.Since(began) > 5*time.Millisecond {
					o.Value.Status = 2
				}
				if err == nil && o.Value.Note == "" {
					o.Value.Note = "done"
					_, err = c.Update(ctx, o)
				}
				return err
			}
		}
	})
	wantReport(t, found, "missing: apps/web", "undisturbed, from where the stories part",
		"lines about other keys are left out",
		"web: is slow: its next step takes 30ms longer", "the process: loses its watch of apps for 30ms")
	here, undisturbed, _ := strings.Cut(found, "undisturbed, from")
	if strings.Contains(found, "db: the handler") || !strings.Contains(here, "web: updates") ||
		!strings.Contains(undisturbed, "web: updates") || strings.Contains(undisturbed, "starts") {
		t.Error(found)
	}
}

// A panic in a goroutine of the handler's own ends the test binary, and so does a run that hangs, when the time of
// the test is over. The output says how to repeat the run.
func TestEndOfTheBinary(t *testing.T) {
	mode := os.Getenv("HANDLERTEST_END")
	if mode != "" {
		starts := 0
		handlertest.Converges(t, with(func(p process, apps client) handler {
			for mode == "hang" { // The bubble does not see that nothing happens.
				runtime.Gosched()
			}
			if starts++; starts > 3 {
				go func() { panic("ouch") }()
			}
			return setsStatus(p, apps)
		}))
		return
	}
	for mode, words := range map[string][]string{
		"panic": {"panic: ouch", "HANDLERTEST='crash#1=10ms'"},
		"hang":  {"the time of TestEndOfTheBinary ends in the run undisturbed, which began ", "panic: test timed out"},
	} {
		timeout := "3s"
		if mode == "panic" {
			timeout = "10m"
			if strings.HasPrefix(runtime.Version(), "go1.25") {
				words = words[:1] // Its traces have no labels.
			}
		}
		cmd := exec.Command(os.Args[0], "-test.run", "^TestEndOfTheBinary$", "-test.timeout", timeout)
		cmd.Env = append(os.Environ(), "HANDLERTEST_END="+mode, "GODEBUG=tracebacklabels=1")
		output, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s: the binary does not fail", mode)
		}
		wantReport(t, string(output), words...)
	}
}

// Calls do not fail by themselves if the handler has a number of tries.
func TestMaxRetriesWithoutFailedCalls(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "300")
	handlertest.Converges(t, func(s scenario) {
		s.Options.MaxRetries = worker.NoRetries
		with(func(p process, apps client) handler {
			return func(ctx context.Context, key string) error {
				web, err := apps.Get(ctx, key)
				if err != nil {
					return err
				}
				web.Version, web.Value.Status = 0, 1
				_, err = apps.Update(ctx, web)
				return err
			}
		})(s)
	})
}
