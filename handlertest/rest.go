package handlertest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// stuckAfter is how much virtual time may pass without an event until a call is considered stuck.
const stuckAfter = time.Hour

// activity is what still happens in a run when no event is left.
type activity struct {
	busy    bool     // A process starts, or a key is queued or held, or a call runs.
	called  int      // how many calls have begun
	running []string // the calls
	settled bool     // Nothing has happened for Settle, and each waiting key was called twice since.
	failing []string // the keys that wait because their last call has failed, and why
}

// resting reports whether the run is over: nothing moves any more, or what runs is stuck. It records what is
// wrong with that. Quiet is the time since the last event.
func (r *run[K]) resting(quiet time.Duration) bool {
	now := r.activity()
	switch {
	case now.busy && quiet > stuckAfter:
		who := "the process"
		if len(now.running) > 0 {
			who = strings.Join(now.running, ", ") + ": the handler"
		}
		r.sim.failRun("stuck", "%s waits, and for %v nothing has ended its wait, such as for room in a channel "+
			"that is full (record.NewFakeRecorder makes one):\n%s", who, stuckAfter, stacksOf(r.label))
		return true
	case now.busy || !now.settled:
		return false
	}
	if len(now.failing) > 0 && r.Options.MaxRetries == worker.UnlimitedRetries {
		r.sim.failRun("fails", "nothing moves any more, but %s. A handler that must wait returns "+
			"worker.RequeueAfter or worker.RetryAfter, and to give up worker.Terminal",
			strings.Join(now.failing, ", "))
	}
	if now.called == 0 { // A handler that does nothing would pass.
		r.sim.failRun("idle", "no handler was called, so nothing is tested: no key was added to the queue. "+
			"There must be a World that has objects and a function that returns keys of them, or an add to QueueOf")
	}
	return true
}

func (r *run[K]) activity() (now activity) {
	r.sim.mu.Lock()
	now.called = r.sim.callsBegun
	for _, m := range r.members {
		now.busy = now.busy || !m.started.Load()
	}
	for c := range r.running {
		if !c.process.isDead() {
			now.running = append(now.running, c.named())
		}
	}
	slices.Sort(now.running)
	now.settled = time.Since(r.sim.lastChange) >= r.Settle && time.Since(r.sim.disturbedUntil) >= r.Settle
	calls := maps.Clone(r.sim.calmCalls)
	failing := maps.Clone(r.failing)
	r.sim.mu.Unlock()

	now.busy = now.busy || len(now.running) > 0
	for _, m := range r.members {
		s := m.queue.Snapshot(math.MaxInt)
		now.busy = now.busy || s.Stats.Queued+s.Stats.Processing > 0
		for _, k := range s.Waiting {
			// A key that comes back by itself must have come twice: it may fail once and then succeed.
			at := processKey{m.Process, k.Key}
			now.settled = now.settled && calls[at] >= 2
			if err := failing[at]; err != nil {
				now.failing = append(now.failing, fmt.Sprintf("%s still fails: %v", m.named(textOf(k.Key)), err))
			}
		}
	}
	return now
}

// invariant is what [Scenario.Always] declares.
type invariant struct {
	name  string
	holds func() error
}

// checkAlways checks the invariants.
func (r *run[K]) checkAlways() {
	for _, i := range r.always {
		if err := i.holds(); err != nil {
			r.sim.failRun("always "+i.name, "Always %q: %v", i.name, err)
		}
	}
}

// checkEnd checks what must hold at the end of a run.
func (r *run[K]) checkEnd() {
	for _, check := range r.checks {
		if err := check(); err != nil {
			r.sim.failRun("check", "Check: %v", err)
		}
	}
}

// measure returns the outcome of the run.
func (r *run[K]) measure() any {
	if r.Measure != nil {
		return r.Measure()
	}
	all := make(objects)
	for _, w := range r.worlds {
		w.measure(all)
	}
	return all
}
