package handlertest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// locks makes a scenario of two keys whose handler holds a mutex during its calls.
func locks(deferred bool) func(s *Scenario[string]) {
	return func(s *Scenario[string]) {
		apps := NewWorld[string, int](s, "apps", nil)
		apps.Set("a", 1)
		apps.Set("b", 1)
		s.Start = func(p *Process) worker.Handler[string] {
			client := apps.Client(p)
			var mu sync.Mutex
			return func(ctx context.Context, key string) error {
				if key == "b" && !deferred {
					time.Sleep(10 * time.Millisecond) // It has no step at which it would notice the crash.
				}
				mu.Lock()
				if deferred {
					defer mu.Unlock()
				}
				_, err := client.Update(ctx, Object[string, int]{Key: key, Value: 2})
				if !deferred {
					mu.Unlock()
				}
				return err
			}
		}
	}
}

// A mutex that is held over a call makes a bubble hang. The report says so, with the story and the stacks of
// that bubble.
func TestHangOfMutex(t *testing.T) {
	res := play(t, locks(true), newDecider(schedule{}, 0), true, "")
	if res.failed == nil {
		t.Fatal("no failure")
	}
	for _, words := range []string{"it hangs", "sync.Mutex", "Options.Workers to 1", "sync.(*Mutex).Lock"} {
		if !strings.Contains(res.failed.text, words) {
			t.Errorf("it does not say %q:\n%s", words, res.failed.text)
		}
	}
	if strings.Contains(res.failed.text, "testing.(*T).Run") {
		t.Errorf("it has the stacks of goroutines outside:\n%s", res.failed.text)
	}
	if !strings.Contains(storyOf(res.story), "a: the handler begins") {
		t.Errorf("it has no story:\n%s", storyOf(res.story))
	}
	s := search{play: func(decider, bool, string) result { return result{hangs: true, crashed: true} },
		log: func(string, ...any) {}, undisturbed: result{outcome: 1}}
	if res := s.under(newDecider(schedule{}, 0), false); res.failed != nil {
		t.Errorf("a run that hangs after its crash is judged: %+v", res.failed)
	}
}

// A crash ends the goroutine that holds the mutex, and another one waits for it forever: that is no mistake
// of the handler.
func TestHangAfterCrash(t *testing.T) {
	res := play(t, locks(false), newDecider(schedule{site{crashes, "", 1}: time.Second}, 0), true, "")
	if !res.hangs || res.failed != nil {
		t.Errorf("got %+v", res)
	}
}

// A goroutine that waits for a lock stops the clock of a bubble.
func TestHang(t *testing.T) {
	defer func(old time.Duration) { patience = old }(patience)
	patience = 200 * time.Millisecond
	unlock := make(chan struct{})
	defer close(unlock)
	res := play(t, func(s *Scenario[string]) {
		apps := NewWorld[string, int](s, "apps", nil)
		apps.Set("a", 1)
		s.Start = func(*Process) worker.Handler[string] {
			return func(context.Context, string) error {
				<-unlock // Made outside the bubble, so it does not count as a wait.
				return nil
			}
		}
	}, newDecider(schedule{}, 0), false, "")
	if res.failed == nil || !strings.Contains(res.failed.text, "it hangs") ||
		!strings.Contains(res.failed.text, "TestHang") {
		t.Errorf("got %+v, want a failure that says that it hangs, with the stack", res.failed)
	}
}
