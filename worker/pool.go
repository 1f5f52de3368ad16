package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
)

// Run is Run of a [New] pool.
func Run[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], handler Handler[T], options Options[T]) error {
	return New(queue, handler, options).Run(ctx)
}

// Pool runs a handler in a number of workers. Any goroutine may call its methods, but handlers and hooks must
// not call Run or WaitIdle.
type Pool[T comparable] struct {
	queue   workqueue.ExtendedRateLimiting[T] // tracker.queue
	handler Handler[T]
	options *Options[T] // the tracker's copy, which has the defaults
	tracker *Tracker[T]

	done func(key T) // queue.Done. Run makes it, once: a method value allocates.

	runCalled atomic.Bool
	wake      chan struct{} // wakes Run: see wakeRun

	startGate     chan struct{} // has room for the worker that waits for StartLimit and then for a key
	waitsForToken atomic.Bool   // That worker waits for StartLimit. awaitStart sets it, for Stats.

	hasListed atomic.Bool // List has succeeded, and what was due has been added. resync sets it, for WaitIdle.

	startCtx, poolCtx context.Context // Run sets them: see prepareContexts.
	cancelPool        context.CancelCauseFunc

	// mu is the tracker's: p.mu.Lock is p.tracker.mu.Lock. It also guards the workers.
	mu struct {
		*sync.Mutex
		phase phase
		// wanted is how many workers SetWorkers or Options ask for. Fewer exist before Run starts them, in a
		// pause, and once some have found the queue shut down and empty. More exist while surplus ones have a
		// key.
		wanted     int
		pause      poolPause
		readySince time.Time // when Options.Ready was called that has not returned, or zero
		workers    []*worker[T]
		// dones counts the Dones that have returned: of holds, and of workers that ask the queue again.
		dones uint64

		getCtx      context.Context // nil before the first worker
		cancelGet   context.CancelFunc
		cancelStart context.CancelFunc // is called without mu: it may call methods of Run's context

		fatal error
		// notStarted has the keys whose add at once the queue refused after its shutdown, or may have. If an
		// earlier add brings one after all, startCall removes it.
		notStarted map[T]struct{}
		left       Left[T]
	}
}

// worker is one of a pool's workers. A goroutine runs work for it; if a handler ends that goroutine with
// runtime.Goexit, another one takes its place. The pool's mu guards it.
type worker[T comparable] struct {
	getting bool        // from nextGet to startCall: it waits for a key, or prepares its call
	call    *Tracked[T] // from startCall until nextGet
	// donesBefore is what dones was before w last asked the queue for a key.
	donesBefore uint64
}

// New returns a pool. It starts nothing: Run handles the keys of queue, and reports wrong arguments.
func New[T comparable](queue workqueue.TypedRateLimitingInterface[T], handler Handler[T], options Options[T]) *Pool[T] {
	p := &Pool[T]{handler: handler, tracker: newTracker(queue, options), wake: make(chan struct{}, 1),
		startGate: make(chan struct{}, 1)}
	p.queue, p.options = p.tracker.queue, &p.tracker.options
	p.tracker.pool, p.mu.Mutex = p, &p.tracker.mu.Mutex
	if handler == nil {
		p.tracker.argsErr = errors.Join(p.tracker.argsErr, errors.New("worker: the handler is nil"))
	}
	p.mu.notStarted = make(map[T]struct{})
	p.mu.wanted = p.options.Workers
	return p
}

// Run handles the queue's keys until ctx ends, as the package comment describes, and returns nil or the fatal
// error. It returns an error at once if ctx, the handler or the queue is nil, the queue is not of this
// project (see foreign.RateLimiting), an option makes no sense, or Run was called before.
func (p *Pool[T]) Run(ctx context.Context) error {
	if ctx == nil {
		return errors.New("worker: Run without a context")
	}
	if err := p.tracker.argsErr; err != nil {
		return err
	}
	if p.runCalled.Swap(true) {
		return errors.New("worker: Run was called before on this pool")
	}

	// The beginning.
	p.tracker.setLogger()
	p.done = p.queue.Done
	p.prepareContexts(ctx)
	if provider, ok := p.options.provider().(InspectorProvider); ok && p.options.Name != "" {
		provider.InspectPool(p.options.Name, p.Inspector())
	}
	p.awaitReady(ctx)
	p.locked(func() {
		p.mu.getCtx, p.mu.cancelGet = context.WithCancel(p.startCtx)
		p.growLocked()
	})
	endResync, resyncEnded := p.startResync()

	// The workers handle keys now. drain waits for the end, and then takes step 1 of the package comment.
	cause := p.drain(ctx, endResync)
	p.endHandlers(cause)    // step 2
	p.endQueue(resyncEnded) // step 3
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.fatal
}

// prepareContexts makes startCtx and poolCtx. All contexts of a pool are:
//
//	Run's context
//	├─ readyCtx    of Options.Ready; also ends with startCtx
//	├─ startCtx    after its end no key is started; ends in phaseFinishing and, but for Drain All, with Run's
//	│  └─ getCtx   of the workers' Gets; SetWorkers replaces it and ends the old one, to wake surplus workers
//	└─ poolCtx     of the calls (see makeContext); ends when Run stops waiting for handlers, not with Run's
func (p *Pool[T]) prepareContexts(ctx context.Context) {
	values := context.WithoutCancel(ctx)
	p.poolCtx, p.cancelPool = context.WithCancelCause(values)
	startParent := ctx // Then no key starts after its end, not even before drain has noticed that.
	if p.options.Drain == All {
		startParent = values
	}
	startCtx, end := context.WithCancel(startParent)
	p.locked(func() { p.startCtx, p.mu.cancelStart = startCtx, end })
	p.moveOn(phaseWorking) // It ends startCtx if Stop was called before Run.
}

// awaitReady calls Options.Ready, with a context that ends with ctx or startCtx.
func (p *Pool[T]) awaitReady(ctx context.Context) {
	if p.options.Ready == nil {
		return
	}
	now := p.options.Clock.Now()
	p.locked(func() { p.mu.readySince = now })
	defer p.locked(func() { p.mu.readySince = time.Time{} })
	readyCtx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(p.startCtx, end)()
	switch err := p.options.Ready(readyCtx); {
	case err == nil:
	case readyCtx.Err() != nil: // Ready was cut short, so no key may be started.
		p.Stop(Running)
	default:
		p.fail(fmt.Errorf("worker: Options.Ready: %w", err))
	}
}

// growLocked starts workers until there are enough, once Run has prepared that.
func (p *Pool[T]) growLocked() {
	for p.mu.getCtx != nil && len(p.mu.workers) < p.neededLocked() && p.mu.phase < phaseFinishing {
		w := &worker[T]{getting: true}
		p.mu.workers = append(p.mu.workers, w)
		go p.work(w)
	}
}

// work gets keys and handles them until w has left the pool.
func (p *Pool[T]) work(w *worker[T]) {
	gone := false
	defer func() {
		if v := recover(); v != nil {
			panic(v) // The program ends, so no other goroutine takes the worker's place.
		}
		if !gone { // The handler has ended this goroutine.
			go p.work(w)
		}
	}()
	for !gone {
		ctx, ok := p.nextGet(w)
		if !ok {
			gone = true
			return
		}
		handOut, err := p.get(ctx)
		switch {
		case err == nil:
			p.handleKey(w, handOut)
		case errors.Is(err, workqueue.ErrShutDown):
			gone = p.leave(w)
		case ctx.Err() == nil:
			p.fail(fmt.Errorf("worker: Next of the queue: %w", err))
		} // If ctx has ended, SetWorkers or the end of the pool has woken w, and nextGet decides.
	}
}

// nextGet returns the context in which w asks the queue for a key, or takes w from the pool and returns
// false.
func (p *Pool[T]) nextGet(w *worker[T]) (context.Context, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.call != nil { // Its Done has returned, or its key is on hold.
		p.mu.dones++
	}
	w.call, w.getting, w.donesBefore = nil, true, p.mu.dones
	if surplus := len(p.mu.workers) > p.neededLocked(); surplus || !p.mayStartLocked() {
		p.removeLocked(w)
		return nil, false
	}
	return p.mu.getCtx, true
}

func (p *Pool[T]) removeLocked(w *worker[T]) {
	i := slices.Index(p.mu.workers, w)
	p.mu.workers = slices.Delete(p.mu.workers, i, i+1)
	p.wakeRun()
}

// leave is called when w has got ErrShutDown: the queue is shut down and nothing is queued. It ends the holds
// and takes w from the pool. A Done may still queue a key that was added before the shutdown, while a worker
// had it or it was on hold. No such key is left behind:
//
//	a Done that returned after w asked    dones has grown, so w does not leave and asks again
//	a later Done of another worker        that worker asks the queue after it
//	a later Done of a hold                afterHoldLocked starts workers, which ask the queue
//
// So after the last worker has left, and if no hold is left, the pool holds no key and ends. (A key that
// others hold is theirs.) While no workers are wanted, as in a pause, it does not end.
func (p *Pool[T]) leave(w *worker[T]) (gone bool) {
	go p.tracker.closeHolds() // A Done may block.
	p.mu.Lock()
	mustAsk := p.mu.dones != w.donesBefore
	if !mustAsk {
		p.removeLocked(w)
	}
	ends := len(p.mu.workers)+p.tracker.mu.holds.table.Len() == 0 && p.neededLocked() > 0
	p.mu.Unlock()
	if ends {
		p.moveOn(phaseFinishing)
	}
	return !mustAsk
}

// afterHoldLocked is called when the Done of a hold has returned, which may have queued a key: see leave.
func (p *Pool[T]) afterHoldLocked() {
	p.mu.dones++
	p.growLocked()
}

// mayStartLocked reports whether keys are still started.
func (p *Pool[T]) mayStartLocked() bool {
	return p.startCtx.Err() == nil && p.mu.phase < phaseFinishing
}

// SetWorkers changes how many handlers run at once, also before Run. It does not wait: surplus workers finish
// the key that they have or are getting. With 0, as in a pause, Run does not return when somebody else shuts
// the queue down. A negative n is an error.
func (p *Pool[T]) SetWorkers(n int) error {
	if n < 0 {
		return fmt.Errorf("worker: SetWorkers of a negative number: %d", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.wanted = n
	p.growLocked()
	p.wakeIfSurplusLocked()
	return nil
}

// locked runs f under mu.
func (p *Pool[T]) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// WaitIdle waits, in tests, until no key is queued, waiting, held or on hold, and Options.List has succeeded.
// It returns ctx.Err() if ctx ends first, and an error if Run cannot begin or has returned before.
func (p *Pool[T]) WaitIdle(ctx context.Context) error {
	if err := p.tracker.argsErr; err != nil {
		return err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		mustList := p.options.List != nil && !p.hasListed.Load() // before the queue is asked
		q, s := p.queue.Stats(), p.Stats()
		switch {
		case q.Queued+q.Waiting+q.Processing+s.OnHold+s.Busy == 0 && !mustList:
			return nil
		case s.Ended:
			return errors.New("worker: Run has returned, and keys are left in the queue or have not been listed")
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stats returns the pool's numbers. It goes over the running calls, over the keys whose last call failed or
// was interrupted, and over up to 1,000 counts of busy keys.
func (p *Pool[T]) Stats() Stats { return p.tracker.Stats() }

// Snapshot is [Tracker.Snapshot].
func (p *Pool[T]) Snapshot(limit int) Snapshot[T] { return p.tracker.Snapshot(limit) }

// SnapshotKey is [Tracker.SnapshotKey].
func (p *Pool[T]) SnapshotKey(key T) KeySnapshot[T] { return p.tracker.SnapshotKey(key) }

// Cancel is [Tracker.Cancel], also for a handler that Run has left behind.
func (p *Pool[T]) Cancel(key T) bool { return p.tracker.Cancel(key) }

// Release is [Tracker.Release].
func (p *Pool[T]) Release(key T) bool { return p.tracker.Release(key) }

// Forget is [Tracker.Forget].
func (p *Pool[T]) Forget(key T) { p.tracker.Forget(key) }

// Inspector shows the pool to tools that do not know the type of its keys.
func (p *Pool[T]) Inspector() Inspector {
	i := p.tracker.Inspector()
	i.Wedged, i.Pause, i.Resume = p.Wedged, p.Pause, p.Resume
	return i
}
