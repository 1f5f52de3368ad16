package handlertest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// after which a run is considered endless; a 100th more for each object that others make
	maxSteps    = 20_000
	maxWrites   = 1000          // of the truth; likewise
	stuckAfter  = time.Hour     // of virtual time, after which a call is considered stuck
	onlyProcess = "the process" // its name, unless there are replicas
)

type run[K comparable] struct {
	*Scenario[K]
	sim     *sim
	label   string // of the run's goroutines
	worlds  []worldOf[K]
	shared  workqueue.TypedRateLimitingInterface[K] // the queue, if it outlives processes
	line    *line[K]                                // of that queue
	endLine func()
	members []*member[K] // the processes that live, or will start again
	// running are the calls that run now. The sim's mu guards it.
	running map[*call]struct{}
	// failing is why the last call of a key has failed, if its handler does not say when it wants to be
	// called again. It is guarded likewise.
	failing map[any]error
	always  []invariant
	checks  []func() error
}

// invariant is what [Scenario.Always] declares.
type invariant struct {
	name  string
	holds func() error
}

type member[K comparable] struct {
	*Process
	queue   *perturbed[K]
	started atomic.Bool // Start has returned
}

// worldOf is a World whose cache adds keys of that type.
type worldOf[K comparable] struct {
	name      string
	attach    func(p *Process, queue *perturbed[K])
	addListed func(p *Process, queue *perturbed[K], added map[K]struct{})
	outcome   func(objects)
}

// objects are the values of all objects by their labels, as pointers: the default measure.
type objects map[string]any

// prepare sets defaults and lets the processes start. It panics if the scenario lacks something.
func (r *run[K]) prepare() {
	switch {
	case (r.Start == nil) == (r.Program == nil):
		panic("handlertest: a Scenario needs either Start or Program")
	case r.Replicas < 0:
		panic(fmt.Sprintf("handlertest: Replicas is negative: %d", r.Replicas))
	case r.Runs < 0:
		panic(fmt.Sprintf("handlertest: Runs is negative: %d", r.Runs))
	}
	if r.Queue == nil {
		r.Queue = func() workqueue.TypedRateLimitingInterface[K] {
			delays := workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, 1000*time.Second)
			return workqueue.NewTypedRateLimitingQueue(delays)
		}
	}
	o := &r.Options
	if o.MaxRetries != worker.UnlimitedRetries {
		r.sim.without |= failedCalls
	}
	o.Workers = cmp.Or(o.Workers, 2)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Drain, o.CancelGrace, o.KeepQueue = worker.Nothing, worker.NoGrace, r.Shared
	finish := o.OnFinish
	o.OnFinish = func(ctx context.Context, res worker.Result[K]) {
		r.sim.mu.Lock()
		if delete(r.failing, res.Key); res.Next == worker.NextRetry && res.After == 0 {
			r.failing[res.Key] = res.Err
		}
		r.sim.mu.Unlock()
		if finish != nil {
			finish(ctx, res)
		}
	}
	if r.Shared {
		queue := foreign.RateLimiting(r.newQueue()) // Once: it keeps account of what is held.
		r.shared, r.line = queue, &line[K]{sim: r.sim, more: make(chan struct{}, 1), turn: make(map[string]int)}
		var ctx context.Context
		ctx, r.endLine = context.WithCancel(context.Background())
		go r.line.run(ctx, queue)
	}
	r.members = make([]*member[K], max(r.Replicas, 1))
	for i := range r.members { // One after the other.
		r.sim.after(0, "", nil, func() { r.start(i) })
	}
}

// newQueue makes a queue. What waits in it decides how long a run must rest.
func (r *run[K]) newQueue() workqueue.TypedRateLimitingInterface[K] {
	queue := r.Queue()
	if _, lists := queue.(workqueue.Extended[K]); r.Settle == 0 && r.Program == nil && lists {
		r.Settle = 10 * time.Second
	} else if r.Settle == 0 {
		r.Settle = 20 * time.Minute // Nobody knows what waits in such a queue.
	}
	return queue
}

// perturb returns the queue as p sees it.
func (r *run[K]) perturb(queue workqueue.TypedRateLimitingInterface[K], p *Process) *perturbed[K] {
	s := r.sim
	return perturb(queue, hooks[K]{
		decide: func(kind string, key K) time.Duration {
			if kind == lease && !r.Shared {
				return 0
			}
			text := p.named(textOf(key)) // Another process may do the same at this moment.
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.decide(kind, text)
		},
		after: func(d time.Duration, key K, do func()) { s.after(d, p.named(textOf(key)), nil, do) },
		tell:  func(key K, what string) { s.tell(textOf(key), "%s: %s", textOf(key), what) },
		dead:  p.isDead,
	})
}

// start begins a life of the i-th process.
func (r *run[K]) start(i int) {
	p := &Process{sim: r.sim, name: onlyProcess, gone: make(chan struct{}), shown: make(map[string]time.Time),
		isProgram: r.Program != nil}
	if r.Replicas > 1 {
		p.name = fmt.Sprintf("process %d", i+1)
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	queue := r.shared
	if !r.Shared {
		queue = r.newQueue()
	}
	m := &member[K]{Process: p, queue: r.perturb(queue, p)}
	r.members[i] = m
	p.crashed = func(down time.Duration, where string) {
		r.sim.tell("", "%s crashes %s; it starts again after %v", p.name, where, down)
		p.kill()
		if r.Shared {
			// Each is an event, because a worker may get the key before it is added again.
			for _, add := range m.queue.takePending() {
				r.sim.after(0, "", nil, *add)
			}
			r.sim.after(down/2, p.name, nil, m.queue.endLeases) // Before it is back.
		} else {
			queue.ShutDown()
		}
		r.sim.after(down, p.name, nil, func() { r.start(i) })
	}
	p.tell(p.ctx, "starts")
	r.sim.change(0) // The pool of a new life has counted no failures.
	for _, w := range r.worlds {
		w.attach(p, m.queue)
	}
	go r.life(m)
}

// QueueOf returns the queue of a process, or the shared one. It is for what adds keys beside the
// caches of Worlds: a handler that adds others, or the events of a world of the program's own. A Program may
// run its workers over it.
func (s *Scenario[K]) QueueOf(p *Process) workqueue.TypedRateLimitingInterface[K] {
	for _, m := range s.run.members {
		if m != nil && m.Process == p {
			return s.run.queueOf(m)
		}
	}
	panic("handlertest: QueueOf needs the Process that Start or Program has got")
}

func (r *run[K]) queueOf(m *member[K]) workqueue.TypedRateLimitingInterface[K] {
	if r.Shared {
		return sharedQueue[K]{leasedQueue[K]{m.queue, unleased[K]{}}, r.line, m.Process}
	}
	return m.queue
}

// life is the goroutine of a process.
func (r *run[K]) life(m *member[K]) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			r.sim.fail("panic", "%s panics: %v\n%s", m.name, v, debug.Stack())
		} else if !returned && !m.isDead() {
			r.sim.fail("panic", "%s has ended its goroutine (t.FailNow, runtime.Goexit)", m.name)
		}
	}()
	if r.Program != nil {
		m.started.Store(true)
		r.Program(m.Process)
		if !m.isDead() {
			r.sim.fail("ended", "the Program has returned, though the context of its process has not ended")
		}
		returned = true
		return
	}
	h := r.Start(m.Process)
	if h == nil {
		panic("handlertest: Start has returned no handler")
	}
	added := make(map[K]struct{})
	for _, w := range r.worlds {
		w.addListed(m.Process, m.queue, added)
	}
	pool := worker.New(r.queueOf(m), handle(r, m.Process, h), r.Options)
	m.started.Store(true)
	if err := pool.Run(m.ctx); err != nil && !m.isDead() {
		r.sim.fail("ended", "%s: the workers have ended: %v", m.name, err)
	}
	returned = true
}

// resting reports whether the run is over: nothing moves any more, or something that runs is stuck, or a key
// fails for good, which it records as the failure.
func (r *run[K]) resting(quiet time.Duration) bool {
	r.sim.mu.Lock()
	busy := false
	for _, m := range r.members {
		busy = busy || !m.started.Load()
	}
	var running []string
	for c := range r.running {
		if !c.process.isDead() {
			running = append(running, c.named())
		}
	}
	slices.Sort(running)
	settled := time.Since(r.sim.changed) >= r.Settle
	calls, failing := maps.Clone(r.sim.calls), maps.Clone(r.failing)
	undisturbed := maps.Clone(r.sim.callsSinceDisturbed)
	slowed := false // What is slow may be so for longer than the handler waits.
	for at := range r.sim.used {
		slowed = slowed || faultOf[at.kind]&(Slow|Leases) != 0
	}
	called := r.sim.called
	r.sim.mu.Unlock()

	var fails []string
	for _, m := range r.members {
		s := m.queue.Snapshot(512)
		busy = busy || s.Stats.Queued+s.Stats.Processing > 0
		for _, k := range s.Waiting {
			// A key that comes back by itself must have come twice per process: it may fail once on each
			// replica and then succeed. Calls that were disturbed do not count, unless the key waits for so
			// long that it has not failed.
			came := undisturbed[k.Key]
			if time.Until(k.Due) > stuckAfter {
				came = calls[k.Key]
			}
			settled = settled && (r.Program != nil || came >= 2*len(r.members))
			if err := failing[k.Key]; err != nil {
				fails = append(fails, fmt.Sprintf("%s still fails: %v", textOf(k.Key), err))
			}
		}
	}
	busy = busy || len(running) > 0
	if busy && quiet > stuckAfter {
		who := "the process"
		if len(running) > 0 {
			who = strings.Join(running, ", ") + ": the handler"
		}
		r.sim.fail("stuck", "%s waits, and for %v nothing has ended its wait, such as for room in a channel that "+
			"is full (record.NewFakeRecorder makes one):\n%s", who, stuckAfter, stacksOf(r.label))
		return true
	}
	if busy || !settled {
		return false
	}
	// A handler that does nothing would pass.
	if len(fails) > 0 && !slowed && r.Options.MaxRetries == worker.UnlimitedRetries {
		r.sim.fail("fails", "nothing moves any more, but %s. A handler that must wait returns "+
			"worker.RequeueAfter or worker.RetryAfter, and to give up worker.Terminal",
			strings.Join(fails, ", "))
	}
	if called == 0 && r.Start != nil {
		r.sim.fail("idle", "no handler was called, so nothing is tested: no key was added to the queue. %s",
			r.whyIdle())
	}
	return true
}

// whyIdle says why no key came.
func (r *run[K]) whyIdle() string {
	if len(r.worlds) == 0 {
		return "There is no World, and nothing was added to QueueOf"
	}
	var why []string
	for _, w := range r.worlds {
		all := make(objects)
		if w.outcome(all); len(all) == 0 {
			why = append(why, w.name+" has no objects")
		} else {
			why = append(why, fmt.Sprintf("the function for the keys of %s returned none for its %d objects", w.name,
				len(all)))
		}
	}
	return strings.Join(why, "; ")
}

// checkAlways checks the invariants.
func (r *run[K]) checkAlways() {
	for _, i := range r.always {
		r.sim.asOthers(func() {
			if err := i.holds(); err != nil {
				r.sim.fail("always "+i.name, "%s: this must always hold: %v", i.name, err)
			}
		})
	}
}

// checkEnd checks what must hold at the end of a run.
func (r *run[K]) checkEnd() {
	for _, check := range r.checks {
		if err := check(); err != nil {
			r.sim.fail("check", "Check: %v", err)
		}
	}
}

// measure returns the outcome of the run.
func (r *run[K]) measure() any {
	if r.Measure != nil {
		r.sim.measuring.Store(true)
		defer r.sim.measuring.Store(false)
		return r.Measure()
	}
	all := make(objects)
	for _, w := range r.worlds {
		w.outcome(all)
	}
	return all
}

// stop ends what still runs, so that the bubble can end.
func (r *run[K]) stop() {
	for _, m := range r.members {
		if m != nil {
			m.kill()
			m.queue.ShutDown()
		}
	}
	if r.line != nil {
		r.endLine()
		r.shared.ShutDown()
	}
	// Goroutines that poll notice the end when they next look at the clock, and what waits for them one round
	// later.
	for range 3 {
		synctest.Wait()
		time.Sleep(time.Hour)
	}
	r.sim.mu.Lock()
	defer r.sim.mu.Unlock()
	r.sim.buried = true
}
