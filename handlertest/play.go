package handlertest

import (
	"bytes"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

// patience is how much real time a run may take.
var patience = 10 * time.Second

type result struct {
	failed   *failure
	outcome  any      // of the measure
	used     schedule // what was disturbed
	crashed  bool
	sites    []site          // the last site of each kind and name
	moments  []time.Duration // at which something happened
	story    []told
	hangs    bool // after a crash, which is no failure
	accepted []acceptance
}

// result returns what is known of the run.
func (s *sim) result() result {
	s.mu.Lock()
	defer s.mu.Unlock()
	res := result{failed: s.failed, used: maps.Clone(s.used), crashed: s.crashed > 0,
		story: slices.Clone(s.story), moments: s.moments}
	for at, n := range s.counts {
		res.sites = append(res.sites, site{at.kind, at.name, n})
	}
	slices.SortFunc(res.sites, compareSites)
	return res
}

// play runs a scenario in a bubble.
func play[K comparable](t *testing.T, scenario func(*Scenario[K]), d decider, tell bool) result {
	type begun struct {
		bubble string
		sim    *sim
	}
	var b begun
	began, ended := make(chan struct{}), make(chan result, 1)
	go func() {
		var res result
		defer func() { // Goroutines are left when the bubble ends.
			// What a crash leaves behind may wait for what the crash has ended.
			if v := recover(); v != nil && res.failed == nil && !res.crashed {
				res.failed = &failure{kind: "left",
					text: fmt.Sprintf("goroutines are left when the context of the process has ended "+
						"(%v):\n%s", v, testkit.GoroutinesOf(b.bubble).Since(nil))}
			}
			ended <- res
		}()
		synctest.Test(t, func(*testing.T) {
			s := newSim(d, tell)
			b = begun{testkit.Bubble(), s}
			close(began)
			over := make(chan any)
			go func() { // If the scenario ends its goroutine, the bubble goes on.
				var v any
				defer func() { over <- v }()
				v = testkit.PanicOf(func() { playInBubble(scenario, s, &res) })
			}()
			if v := <-over; v != nil {
				panic(v)
			}
		})
	}()
	<-began
	ticker := time.NewTicker(patience / 40)
	defer ticker.Stop()
	for start, locks := time.Now(), 0; ; {
		select {
		case res := <-ended:
			return res
		case <-ticker.C:
		}
		stuck := testkit.GoroutinesOf(b.bubble)
		if waitsForLock(stuck) {
			locks++
		} else {
			locks = 0
		}
		switch res := b.sim.result(); {
		case locks >= 2 && res.crashed:
			// The crash may have ended a goroutine that held a lock, for which another one of the dead
			// process waits.
			res.hangs = true
			return res
		case locks >= 2:
			res.failed = hang("a goroutine waits for a lock, and all others wait, too. If one holds a sync.Mutex, "+
				"RWMutex or Once while it calls the world: testing/synctest cannot see that the others wait. Set "+
				"Options.Workers to 1, or use a channel of size 1 as the lock", stuck)
			return res
		case time.Since(start) > patience:
			res.failed = hang(fmt.Sprintf("after %v of real time a goroutine computes, or waits for something "+
				"outside its run", patience), stuck)
			return res
		}
	}
}

// playInBubble sets the result when the run is over, also if the scenario panics or ends its goroutine.
func playInBubble[K comparable](scenario func(*Scenario[K]), s *sim, res *result) {
	r := &run[K]{sim: s, running: make(map[*call]struct{}), failing: make(map[any]error)}
	r.Scenario = &Scenario[K]{run: r}
	returned := false
	var outcome any
	defer func() {
		s.mu.Lock()
		if v := recover(); v != nil {
			s.failed = &failure{kind: "panic", text: fmt.Sprintf("panic: %v\n%s", v, debug.Stack())}
		} else if !returned {
			s.failed = &failure{kind: "panic",
				text: "the scenario has ended its goroutine (t.FailNow, runtime.Goexit)"}
		}
		s.over = true
		s.mu.Unlock()
		*res = s.result()
		res.outcome, res.accepted = outcome, r.accepted
		r.stop()
	}()
	scenario(r.Scenario)
	r.prepare()
	s.afterEvents = r.checkAlways
	s.drive(r.resting)
	if s.failed == nil {
		s.asOthers(func() {
			r.checkEnd()
			outcome = r.measure()
		})
	}
	returned = true
}

func hang(why string, stuck testkit.GoroutineSet) *failure {
	return &failure{kind: "hang", text: fmt.Sprintf("it hangs: %s. (The goroutines of this run stay until "+
		"the test binary ends, since Go cannot end them.)\n%s", why, stuck.Since(nil))}
}

// waitsForLock reports whether one of the goroutines waits for a Mutex, RWMutex or Once, and none does
// anything.
func waitsForLock(stacks testkit.GoroutineSet) (waits bool) {
	for _, stack := range stacks {
		state, _, _ := bytes.Cut(stack, []byte("\n"))
		for _, busy := range []string{"[run", "[syscall", "[IO wait", "[copystack", "[preempted", "[GC"} {
			if bytes.Contains(state, []byte(busy)) {
				return false
			}
		}
		waits = waits || bytes.Contains(stack, []byte("sync.runtime_Sem"))
	}
	return waits
}
