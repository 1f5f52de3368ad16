package handlertest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

var errNotWired = errors.New("not wired")

// setsStatus is a right handler.
func setsStatus(_ process, apps client) handler {
	return func(ctx context.Context, key string) error {
		web, err := apps.Get(ctx, key)
		if err != nil {
			return err
		}
		web.Value.Status = web.Value.Spec
		_, err = apps.Update(ctx, web)
		return err
	}
}

// loadedByA has a right handler for whose other keys the call for one must come first.
func loadedByA(s scenario) {
	apps := apps(s)
	apps.Set("a", app{})
	apps.Set("b", app{})
	s.Start = func(process) handler {
		var loaded atomic.Bool
		return func(_ context.Context, key string) error {
			if key == "a" {
				loaded.Store(true)
			} else if !loaded.Load() {
				return errNotWired
			}
			return nil
		}
	}
}

// Right handlers that were accused once.
func TestNotAccused(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "50")
	for _, c := range []struct {
		name     string
		schedule string // if it is known
		scenario func(s scenario)
	}{
		{"a handler with a timeout", "slow:web#3=10s slow:web#6=10s", func(s scenario) {
			s.Options.HandlerTimeout = 5 * time.Second
			with(setsStatus)(s)
		}},
		{"applies the same periodically", "", with(func(p process, apps client) handler {
			set := setsStatus(p, apps)
			return func(ctx context.Context, key string) error {
				if err := set(ctx, key); err != nil {
					return err
				}
				return worker.RequeueAfter(time.Minute)
			}
		})},
		{"writes the same to a world of its own", "", func(s scenario) {
			written := 0
			with(func(p process, _ client) handler {
				return func(ctx context.Context, _ string) error {
					err := p.Write(ctx, "applies", func() error {
						if written == 1 {
							return fmt.Errorf("nothing to do: %w", handlertest.ErrUnchanged)
						}
						written = 1
						return nil
					})
					if err != nil {
						return err
					}
					return worker.RequeueAfter(time.Minute)
				}
			})(s)
			s.Measure = func() any { return written }
		}},
		{"requeued in a week", "slow:web#1=3ms", with(func(process, client) handler {
			return func(context.Context, string) error { return worker.RequeueAfter(7 * 24 * time.Hour) }
		})},
		{"fails until it is given up", "", func(s scenario) {
			s.Options.MaxRetries = 3
			with(func(process, client) handler {
				return func(context.Context, string) error { return errNotWired }
			})(s)
		}},
		{"fails until it is given up, long after all else rests", "", func(s scenario) {
			s.Options.MaxRetries = 15
			with(func(process, client) handler {
				return func(context.Context, string) error { return errNotWired }
			})(s)
		}},
		{"fails while another call is slow", "slow:a#1=10s", loadedByA},
		{"fails while another call is late", "late:a#1=10s", loadedByA},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.schedule != "" {
				t.Setenv("HANDLERTEST", c.schedule)
				handlertest.Converges(t, c.scenario)
				t.Setenv("HANDLERTEST", "")
			}
			if c.schedule == "" || c.name == "a handler with a timeout" { // The others take long.
				handlertest.Converges(t, c.scenario)
			}
		})
	}
}

// 400 objects with nine writes each are many writes, and no endless ones.
func TestManyObjects(t *testing.T) {
	t.Setenv("HANDLERTEST", "crash#1=1s")
	handlertest.Converges(t, func(s scenario) {
		apps := apps(s)
		create := func(name string) {
			for i := range 200 {
				apps.Set(fmt.Sprint(name, i), app{Spec: 9})
			}
		}
		create("first-")
		s.At(time.Second, func() { create("second-") })
		s.Start = func(p process) handler {
			apps := apps.Client(p)
			return func(ctx context.Context, key string) error {
				o, err := apps.Get(ctx, key)
				for ; err == nil && o.Value.Status < o.Value.Spec; o.Value.Status++ {
					next := o
					next.Value.Status++
					o, err = apps.Update(ctx, next)
					o.Value.Status-- // as it was before the loop counts
				}
				return err
			}
		}
	})
}

// copied is a value with a method of the kind that Kubernetes' types have.
type copied struct{ labels map[string]string }

func (c *copied) DeepCopy() *copied { return &copied{maps.Clone(c.labels)} }

// What a call returns is not the truth itself.
func TestCallsReturnCopies(t *testing.T) {
	t.Setenv("HANDLERTEST", "slow:web#1=3ms")
	handlertest.Converges(t, func(s scenario) {
		apps := handlertest.NewWorld[string, *copied](s, "apps", nil)
		apps.Set("web", &copied{map[string]string{}})
		s.Start = func(p process) handler {
			apps := apps.Client(p)
			return func(ctx context.Context, key string) error {
				o, err := apps.Get(ctx, key)
				for _, label := range []string{"a", "b"} {
					if err == nil && o.Value.labels[label] == "" {
						before := o.Version
						o.Value.labels[label] = "1"
						if o, err = apps.Update(ctx, o); err == nil && o.Version == before {
							t.Errorf("writing %v makes no new version: the truth was changed before", o.Value)
						}
					}
				}
				if all, err2 := apps.List(ctx); err2 == nil && (len(all) != 1 || all[0].Version == 0) {
					t.Errorf("it lists %v", all)
				}
				cached, _ := apps.Cached(key)
				cached.Value.labels["c"] = "1"
				if again, _ := apps.Cached(key); again.Value.labels["c"] != "" {
					t.Error("a change of what Cached returns changes the cache")
				}
				return ignoring(err, handlertest.ErrConflict)
			}
		}
	})
}

// The default measure follows pointers, and takes an empty slice and nil for the same.
func TestMeasureOfPointers(t *testing.T) {
	type value struct {
		Replicas *int
		Names    []string
	}
	sets := func(replicas int) func(s scenario) {
		return func(s scenario) {
			sets := handlertest.NewWorld[string, value](s, "sets", nil)
			sets.Set("web", value{})
			starts := 0
			s.Start = func(p process) handler {
				starts++
				sets, n, again := sets.Client(p), replicas*starts, starts > 1
				return func(ctx context.Context, key string) error {
					o, err := sets.Get(ctx, key)
					if err != nil || o.Value.Replicas != nil {
						return err
					}
					if o.Value.Replicas = &n; again {
						o.Value.Names = []string{}
					}
					_, err = sets.Update(ctx, o)
					return err
				}
			}
		}
	}
	t.Setenv("HANDLERTEST", "slow:web#1=3ms")
	handlertest.Converges(t, sets(0))
	t.Setenv("HANDLERTEST", "crash#1=1s slow:web#1=3s")
	handlertest.Converges(t, sets(0))
	t.Setenv("HANDLERTEST", "")
	t.Setenv("HANDLERTEST_RUNS", "300")
	found := handlertest.Find(t, func(s scenario) {
		sets(1)(s)
		start := s.Start
		s.Start = func(p process) handler {
			h := start(p)
			return func(ctx context.Context, key string) error { p.Point(ctx, "begins"); return h(ctx, key) }
		}
	})
	wantReport(t, found, `missing: sets/web = {"Replicas":1,"Names":null}`,
		`extra:   sets/web = {"Replicas":2,`)
}

// The report has the failure, no matter what happens in the run for its story, and a line for a shell.
func TestReport(t *testing.T) {
	runs := 0
	sometimes := func(s scenario) {
		runs++
		wrong := runs > 2 && runs < 6
		with(func(_ process, apps client) handler {
			return func(ctx context.Context, key string) error {
				web, err := apps.Get(ctx, key)
				if web.Value.Status = 1; wrong {
					web.Value.Status = 7
				}
				if err == nil {
					_, err = apps.Update(ctx, web)
				}
				return err
			}
		})(s)
	}
	found := handlertest.Find(t, sometimes)
	wantReport(t, found, "extra:   apps/web = {Spec:1 Status:7",
		"It did not fail again when it was run for its story", "the handler begins")
	if strings.Contains(found, "HANDLERTEST=''") {
		t.Errorf("go test takes an empty schedule for none:\n%s", found)
	}
	found = handlertest.Find(t, func(s scenario) { wrongHandlers[4].scenario(s, false) })
	_, line, _ := strings.Cut(found, "repeat: HANDLERTEST='")
	if wantReport(t, line, "' go test -run '^TestReport$'  # run "); strings.ContainsAny(
		line[strings.LastIndex(line, "'"):], "();") && !strings.Contains(line, "  # ") {
		t.Errorf("a shell cannot read %s", line)
	}
	if strings.Contains(line, "from 1 disturbances") {
		t.Errorf("nothing was shrunk: %s", line)
	}
}

// A schedule of an older version of the code says nothing about the code of now.
func TestUnusedSchedule(t *testing.T) {
	t.Setenv("HANDLERTEST", "slow:web#1=3ms slow:renamed#1=3ms")
	found, log := handlertest.FindNamed(t, t.Name(), with(setsStatus))
	if found != "" || !strings.Contains(log, "never comes to slow:renamed#1") || strings.Contains(log, "web") {
		t.Errorf("reports %q and logs %q", found, log)
	}
}

// At counts from the beginning of the run, wherever it is called.
func TestAtInAt(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "1")
	handlertest.Converges(t, func(s scenario) {
		began := time.Now()
		s.At(time.Second, func() {
			s.At(2*time.Second, func() {
				if d := time.Since(began); d != 2*time.Second {
					t.Errorf("happens after %v", d)
				}
			})
		})
		with(setsStatus)(s)
	})
}

// An object that the cache does not show has its key nevertheless.
func TestKeyOfMissing(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "1")
	handlertest.Converges(t, with(func(_ process, apps client) handler {
		return func(context.Context, string) error {
			if o, _ := apps.Cached("nope"); o.Key != "nope" {
				t.Errorf("%+v", o)
			}
			return nil
		}
	}))
}

// More of what is wrong with a test: beside TestBadInput.
func TestBadScenario(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario func(s scenario)
		words    []string
	}{
		{"ended in At", func(s scenario) {
			with(setsStatus)(s)
			s.At(time.Second, runtime.Goexit)
		}, []string{"the scenario has ended its goroutine", "updates apps/web"}},
		{"ended in Start", func(s scenario) {
			s.Start = func(process) handler { runtime.Goexit(); return nil }
		}, []string{"the process has ended its goroutine (t.FailNow, runtime.Goexit)"}},
		{"two worlds of one name", func(s scenario) { apps(s); apps(s) },
			[]string{`two worlds with the name "apps"`}},
		{"two keys of one text", func(s scenario) {
			w := handlertest.NewWorld(s, "any", func(handlertest.Object[any, int]) []string { return []string{"web"} })
			w.Set(1, 1)
			w.Set("1", 1)
			s.Start = func(process) handler { return func(context.Context, string) error { return nil } }
		}, []string{"two keys have the same text, any/1: give them a method String"}},
		{"a world made too late", func(s scenario) {
			s.Start = func(p process) handler { apps(s).Client(p); return nil }
		}, []string{"make it in the function of Converges, before Start"}},
		{"always fails", with(func(process, client) handler {
			return func(context.Context, string) error { return errNotWired }
		}), []string{"the scenario fails undisturbed", "web still fails: not wired", "worker.RequeueAfter"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := handlertest.Find(t, c.scenario)
			wantReport(t, found, c.words...)
		})
	}
}
