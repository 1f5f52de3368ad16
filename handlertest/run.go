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
	members []*member[K] // the processes that live, or will start again
	// running are the calls that run now. The sim's mu guards it.
	running map[*call]struct{}
	// failing is why the last call for a key has failed, if its handler does not say when it wants to be
	// called again. It is guarded likewise.
	failing map[processKey]error
	always  []invariant
	checks  []func() error
}

// processKey is a key in one life of a process.
type processKey struct {
	process *Process
	key     any
}

// member is a process with its queue.
type member[K comparable] struct {
	*Process
	queue   *processQueue[K]
	started atomic.Bool // Start has returned
}

// prepare sets defaults and lets the processes start. It panics if the scenario lacks something.
func (r *run[K]) prepare() {
	switch {
	case r.Start == nil:
		panic("handlertest: a Scenario needs Start")
	case r.Replicas < 0:
		panic(fmt.Sprintf("handlertest: Replicas is negative: %d", r.Replicas))
	case r.Runs < 0:
		panic(fmt.Sprintf("handlertest: Runs is negative: %d", r.Runs))
	}
	r.Settle = cmp.Or(r.Settle, 10*time.Second)
	r.prepareOptions()
	r.sim.byScript = int(r.sim.changes.Load())
	r.sim.begin()
	r.members = make([]*member[K], max(r.Replicas, 1))
	for i := range r.members { // One after the other.
		r.sim.after(0, "", nil, func() { r.start(i) })
	}
}

// prepareOptions makes the options those of a pool that ends with its process.
func (r *run[K]) prepareOptions() {
	o := &r.Options
	if o.MaxRetries != worker.UnlimitedRetries {
		r.sim.without |= failedCalls
	}
	o.Workers = cmp.Or(o.Workers, 2)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Drain, o.CancelGrace, o.KeepQueue = worker.Nothing, worker.NoGrace, false
}

// optionsOf returns the options of a process's pool, which notes which keys fail.
func (r *run[K]) optionsOf(p *Process) worker.Options[K] {
	o := r.Options
	o.OnFinish = func(ctx context.Context, res worker.Result[K]) {
		at := processKey{p, res.Key}
		r.sim.mu.Lock()
		if delete(r.failing, at); res.Next == worker.NextRetry && res.After == 0 {
			r.failing[at] = res.Err
		}
		r.sim.mu.Unlock()
		if r.Options.OnFinish != nil {
			r.Options.OnFinish(ctx, res)
		}
	}
	return o
}

// start begins a life of the i-th process.
func (r *run[K]) start(i int) {
	p := &Process{sim: r.sim, name: onlyProcess, gone: make(chan struct{}), shown: make(map[string]time.Time)}
	if r.Replicas > 1 {
		p.name = fmt.Sprintf("process %d", i+1)
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	m := &member[K]{Process: p, queue: newQueue[K](p)}
	r.members[i] = m
	p.crash = func(down time.Duration, where string) {
		r.sim.tell("", "%s crashes %s; it starts again after %v", p.name, where, down)
		p.kill()
		m.queue.ShutDown()
		r.sim.after(down, p.name, nil, func() { r.start(i) })
	}
	p.tell(p.ctx, "starts")
	r.sim.mu.Lock()
	r.sim.noteChangeLocked() // Its caches are new.
	r.sim.mu.Unlock()
	for _, w := range r.worlds {
		w.attach(p, m.queue)
	}
	go r.life(m)
}

// life is the goroutine of a process.
func (r *run[K]) life(m *member[K]) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			r.sim.failRun("panic", "%s panics: %v\n%s", m.name, v, debug.Stack())
		} else if !returned && !m.isDead() {
			r.sim.failRun("panic", "%s has ended its goroutine (t.FailNow, runtime.Goexit)", m.name)
		}
	}()
	h := r.Start(m.Process)
	if h == nil {
		panic("handlertest: Start has returned no handler")
	}
	added := make(map[K]struct{})
	for _, w := range r.worlds {
		w.addListed(m.Process, m.queue, added)
	}
	pool := worker.New(m.queue, handle(r, m.Process, h), r.optionsOf(m.Process))
	m.started.Store(true)
	if err := pool.Run(m.ctx); err != nil && !m.isDead() {
		r.sim.failRun("ended", "%s: the workers have ended: %v", m.name, err)
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
