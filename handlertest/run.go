package handlertest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/worker"
)

// onlyProcess is the name of the process, unless there are replicas.
const onlyProcess = "the process"

// run is one run of a scenario: its processes, over the events of sim.
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

// member is a process with its queue.
type member[K comparable] struct {
	*Process
	queue   *perturbed[K]
	started atomic.Bool // Start has returned
}

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
	r.prepareOptions()
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

// prepareOptions makes the options those of a pool that ends with its process. It notes which keys fail.
func (r *run[K]) prepareOptions() {
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
	r.sim.goroutinesEnded = true
}
