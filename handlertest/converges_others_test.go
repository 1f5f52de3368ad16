package handlertest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/handlertest"
)

// Another program completes jobs, whenever the handler creates them.
func TestOthers(t *testing.T) {
	scenario := func(right bool) func(s scenario) {
		return func(s scenario) {
			apps := apps(s)
			apps.Set("web", app{Spec: 3})
			jobs := handlertest.NewWorld(s, "jobs", func(o handlertest.Object[string, bool]) []string {
				return []string{"web"}
			})
			s.Others("the job controller", func() {
				for _, job := range jobs.All() {
					jobs.Set(job.Key, true)
				}
			})
			s.Start = func(p process) handler {
				apps, jobs := apps.Client(p), jobs.Client(p)
				return func(ctx context.Context, key string) error {
					web, err := apps.Get(ctx, key)
					for n := 0; err == nil && n < web.Value.Spec; n++ { // One job after the other.
						name := fmt.Sprint("job-", n)
						job, ok := jobs.Cached(name)
						if !ok {
							_, err = jobs.Create(ctx, name, false)
							return ignoring(err, handlertest.ErrExists)
						}
						if right && !job.Value {
							return nil
						}
					}
					if err == nil && web.Value.Status == 0 {
						web.Value.Status = 1
						for _, job := range jobs.CachedAll() {
							if !job.Value {
								web.Value.Note = "too early"
							}
						}
						_, err = apps.Update(ctx, web)
					}
					return err
				}
			}
		}
	}
	t.Setenv("HANDLERTEST_RUNS", "300")
	handlertest.Converges(t, scenario(true))
	wantReport(t, handlertest.Find(t, scenario(false)), "too early")
	t.Setenv("HANDLERTEST", "late:the+job+controller#2=3s")
	handlertest.Converges(t, scenario(true))
}

// Undisturbed, a cache shows a write before a call that begins at the same moment, whether the key or the world has
// the name that comes first.
func TestCacheShowsFirst(t *testing.T) {
	t.Setenv("HANDLERTEST", "slow:none#1=3ms")
	for _, key := range []string{"a", "z"} {
		handlertest.Converges(t, func(s scenario) {
			apps, pods := apps(s), handlertest.NewWorld(s, "pods", nothing)
			apps.Set(key, app{})
			s.Start = func(p process) handler {
				pods, calls := pods.Client(p), 0
				return func(ctx context.Context, key string) error {
					calls++
					if _, exists := pods.Cached(key); exists || calls > 1 {
						if !exists {
							t.Errorf("%s: call %d does not see the pod", key, calls)
						}
						return nil
					}
					s.QueueOf(p).Add(key)
					_, err := pods.Create(ctx, key, app{})
					return err
				}
			}
		})
	}
}

// Goroutines that never end can be accepted, and the outcome still counts.
func TestAcceptGoroutines(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "300")
	scenario := func(s scenario) {
		twoMistakes(s)
		start := s.Start
		s.Start = func(p process) handler {
			go func() {
				for {
					time.Sleep(10 * time.Hour)
				}
			}()
			return start(p)
		}
	}
	wantReport(t, handlertest.Find(t, scenario), "fails undisturbed: goroutines are left")
	report, log := handlertest.FindNamed(t, t.Name(), func(s *handlertest.Scenario[string]) {
		scenario(s)
		s.Accept("goroutines are left", "a cache cleans up every ten hours")
	})
	wantReport(t, report, "the outcome differs")
	wantReport(t, log, "goroutines are left")
}

// Runs is how many runs there are.
func TestRuns(t *testing.T) {
	least := 1000
	if testing.Short() {
		least /= 5
	}
	for runs, most := range map[int]int{7: 20, 0: 2000} {
		n := 0
		handlertest.Converges(t, func(s scenario) {
			n++
			s.Runs = runs
			with(setsStatus)(s)
		})
		if n < runs+2 || n > most || runs == 0 && n < least {
			t.Errorf("with Runs = %d there were %d", runs, n)
		}
	}
}
