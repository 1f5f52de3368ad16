package handlertest

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	maxSteps    = 20_000        // after which a run is considered endless
	maxWrites   = 1000          // of the truth, after which it is, too
	stuckAfter  = time.Hour     // of virtual time, after which a call is considered stuck
	onlyProcess = "the process" // its name, unless there are replicas
)

// patience is how much real time a run may take.
var patience = 10 * time.Second

// run is one run of a scenario.
type run[K comparable] struct {
	*Scenario[K]
	sim     *sim
	worlds  []worldOf[K]
	shared  *perturbed[K] // the queue, if it outlives processes
	line    *line[K]      // of that queue
	endLine func()
	members []*member[K] // the processes that live, or will start again
	// running are the calls that go on. The sim's mu guards it, and started of the members.
	running map[*call]struct{}
}

// member is a process with its queue.
type member[K comparable] struct {
	*Process
	queue   memberQueue[K]
	started bool // Start has returned
}

// worldOf is a World whose cache adds keys of that type.
type worldOf[K comparable] interface {
	attach(p *Process, queue memberQueue[K])
	addListed(p *Process, added map[any]struct{})
	describe() []string
}

// result is what came of a run.
type result struct {
	failed  *failure
	outcome any      // of the measure
	used    schedule // what was disturbed
	crashed bool
	crashes int // at how many points the process could have crashed
	story   []string
}

// play runs a scenario in a bubble.
func play[K comparable](t *testing.T, scenario func(*Scenario[K]), d decider, tell bool) (res result) {
	var bubble string
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { // Goroutines are left when the bubble ends.
			// What a crash leaves behind may wait for what the crash has ended.
			if v := recover(); v != nil && res.failed == nil && !res.crashed {
				res.failed = &failure{"left", fmt.Sprintf("goroutines are left when the context of the process has ended (%v):\n%s",
					v, testkit.GoroutinesOf(bubble).Since(nil))}
			}
		}()
		synctest.Test(t, func(*testing.T) {
			bubble = testkit.Bubble()
			res = playInBubble(scenario, d, tell)
		})
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return res
	case <-timer.C:
		return result{failed: &failure{"stuck", fmt.Sprintf("it hangs: after %v of real time a goroutine waits for a lock or computes\n%s",
			patience, testkit.Stacks())}, used: d.used}
	}
}

func playInBubble[K comparable](scenario func(*Scenario[K]), d decider, tell bool) (res result) {
	s := newSim(d, tell)
	r := &run[K]{sim: s, running: make(map[*call]struct{})}
	r.Scenario = &Scenario[K]{run: r}
	defer func() {
		if v := recover(); v != nil {
			s.failed = &failure{"panic", fmt.Sprintf("panic: %v\n%s", v, debug.Stack())}
		}
		s.mu.Lock()
		s.over = true
		res.failed, res.used, res.crashes, res.story = s.failed, s.used, s.counts[site{crashes, "", 0}], s.story
		for at := range s.used {
			res.crashed = res.crashed || at.kind == crashes
		}
		s.mu.Unlock()
		r.stop()
	}()
	scenario(r.Scenario)
	r.check()
	r.prepare()
	s.drive(r.resting)
	if s.failed == nil {
		res.outcome = r.measure()
	}
	return res
}

// check panics if the scenario lacks something.
func (r *run[K]) check() {
	switch {
	case (r.Start == nil) == (r.Program == nil):
		panic("handlertest: a Scenario needs either Start or Program")
	case r.Replicas < 0:
		panic(fmt.Sprintf("handlertest: Replicas is negative: %d", r.Replicas))
	}
}

// prepare sets defaults and lets the processes start.
func (r *run[K]) prepare() {
	if r.Queue == nil {
		r.Queue = func() workqueue.TypedRateLimitingInterface[K] {
			return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, 1000*time.Second))
		}
	}
	if _, exact := r.Queue().(workqueue.Extended[K]); r.Settle == 0 && r.Program == nil && exact {
		r.Settle = 10 * time.Second
	} else if r.Settle == 0 {
		r.Settle = 20 * time.Minute // Nobody knows what waits in such a queue.
	}
	o := &r.Options
	if o.Workers == 0 {
		o.Workers = 2
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Drain, o.CancelGrace = worker.Nothing, worker.NoGrace
	r.Replicas = max(r.Replicas, 1)
	if r.Shared {
		r.shared = r.newQueue()
		r.line = newLine(r.sim, r.shared)
		var ctx context.Context
		ctx, r.endLine = context.WithCancel(context.Background())
		go r.line.run(ctx)
		o.KeepQueue = true
	}
	r.members = make([]*member[K], r.Replicas)
	for i := range r.members { // One after the other.
		r.sim.after(0, "", nil, func() { r.start(i) })
	}
}

func (r *run[K]) newQueue() *perturbed[K] {
	s := r.sim
	return perturb(r.Queue(), hooks[K]{
		decide: func(kind string, key K) time.Duration {
			if kind == lease && !r.Shared {
				return 0
			}
			text := fmt.Sprint(key)
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.decide(kind, text)
		},
		after: func(d time.Duration, key K, do func()) { s.after(d, fmt.Sprint(key), nil, do) },
		tell:  func(key K, what string) { s.tell("%v: %s", key, what) },
	})
}

// start begins a life of the i-th process.
func (r *run[K]) start(i int) {
	p := &Process{sim: r.sim, name: onlyProcess, gone: make(chan struct{}), shown: make(map[string]time.Time)}
	if r.Replicas > 1 {
		p.name = fmt.Sprintf("process %d", i+1)
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	queue := r.shared
	if queue == nil {
		queue = r.newQueue()
	}
	m := &member[K]{Process: p, queue: memberQueue[K]{queue, p, r.line}}
	r.members[i] = m
	p.crashed = func(down time.Duration, where string) {
		r.sim.tell("%s crashes %s; it starts again after %v", p.name, where, down)
		p.kill()
		if r.Shared {
			r.sim.after(down/2, p.name, nil, m.queue.endLeases) // Before it is back.
		} else {
			queue.ShutDown()
		}
		r.sim.after(down, p.name, nil, func() { r.start(i) })
	}
	p.tell(p.ctx, "starts")
	for _, w := range r.worlds {
		w.attach(p, m.queue)
	}
	go r.life(m)
}

// life is the goroutine of a process.
func (r *run[K]) life(m *member[K]) {
	defer func() {
		if v := recover(); v != nil {
			r.sim.fail("panic", "%s panics: %v\n%s", m.name, v, debug.Stack())
		}
	}()
	if r.Program != nil {
		r.setStarted(m)
		r.Program(m.Process)
		if !m.isDead() {
			r.sim.fail("ended", "the Program has returned, though the context of its process has not ended")
		}
		return
	}
	h := r.Start(m.Process)
	if h == nil {
		panic("handlertest: Start has returned no handler")
	}
	added := make(map[any]struct{})
	for _, w := range r.worlds {
		w.addListed(m.Process, added)
	}
	var queue workqueue.TypedRateLimitingInterface[K] = m.queue
	if r.Shared {
		queue = leasedMemberQueue[K]{m.queue}
	}
	pool := worker.New(queue, handle(r, m.Process, h), r.Options)
	r.setStarted(m)
	if err := pool.Run(m.ctx); err != nil && !m.isDead() {
		r.sim.fail("ended", "%s: the workers have ended: %v", m.name, err)
	}
}

func (r *run[K]) setStarted(m *member[K]) {
	r.sim.mu.Lock()
	defer r.sim.mu.Unlock()
	m.started = true
}

// resting reports that nothing will happen any more, or has failed because something that goes on never ends.
func (r *run[K]) resting(quiet time.Duration) bool {
	r.sim.mu.Lock()
	busy := false
	for _, m := range r.members {
		busy = busy || !m.started
	}
	var running []string
	for c := range r.running {
		if !c.process.isDead() {
			running = append(running, c.String())
		}
	}
	slices.Sort(running)
	settled := time.Since(r.sim.changed) >= r.Settle
	r.sim.mu.Unlock()

	for _, m := range r.members {
		if r.Program != nil {
			break
		}
		s := m.queue.Snapshot(512)
		busy = busy || s.Stats.Queued+s.Stats.Processing > 0
		for _, k := range s.Waiting {
			settled = settled && r.callsOf(k.Key) >= 2
		}
	}
	busy = busy || len(running) > 0
	switch {
	case busy && quiet > stuckAfter && len(running) > 0:
		r.sim.fail("stuck", "%s: the handler waits, and for %v nothing has ended its wait", strings.Join(running, ", "), stuckAfter)
		return true
	case busy && quiet > stuckAfter:
		r.sim.fail("stuck", "the process waits, and for %v nothing has ended its wait", stuckAfter)
		return true
	}
	return !busy && settled
}

// callsOf returns how many calls of a key have begun since something has changed.
func (r *run[K]) callsOf(key K) int {
	r.sim.mu.Lock()
	defer r.sim.mu.Unlock()
	return r.sim.calls[fmt.Sprint(key)]
}

// measure returns the outcome of the run, or fails it if the measure does.
func (r *run[K]) measure() any {
	if r.Measure == nil {
		var lines []string
		for _, w := range r.worlds {
			lines = append(lines, w.describe()...)
		}
		return strings.Join(lines, "\n")
	}
	return r.Measure()
}

// stop ends what still runs, so that the bubble can end.
func (r *run[K]) stop() {
	for _, m := range r.members {
		if m != nil {
			m.kill()
			m.queue.perturbed.ShutDown()
		}
	}
	if r.line != nil {
		r.endLine()
		r.shared.ShutDown()
	}
	for range 3 { // Some goroutines only notice when they next look at the clock.
		synctest.Wait()
		time.Sleep(time.Hour)
	}
	r.sim.mu.Lock()
	defer r.sim.mu.Unlock()
	r.sim.buried = true
}
