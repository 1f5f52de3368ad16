package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// Run handles the keys of queue until ctx ends, as the package comment describes. It is Run of a [New] pool.
func Run[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], handler Handler[T], options Options[T]) error {
	return New(queue, handler, options).Run(ctx)
}

// Pool runs a handler in a number of workers that can be changed. It is made by [New]. All methods may
// be called from any goroutine, handlers and hooks included, except that those must not call Run.
type Pool[T comparable] struct {
	queue   workqueue.TypedRateLimitingInterface[T]
	getter  workqueue.Extended[T] // queue, or made of it
	handler Handler[T]
	options Options[T]

	// These are the queue, or nil if it does not have their methods. (Methods that few keys need are asserted where they are called.)

	priorities PriorityQueue[T]
	leaser     workqueue.Leaser[T]

	// begun is set by the first Run or Handle.
	begun atomic.Bool
	// prepareHandle is beginHandling, once. handles reports that Handle can be called; lastSweep is when it last swept failures.
	prepareHandle func() error
	handles       atomic.Bool
	lastSweep     atomic.Int64

	failures failures[T]
	// anyFailing has one element when keys begin to fail. See awaitStop.
	anyFailing chan struct{}
	// stopAsked has one element when Stop has changed something. finished is closed, under mu, when all workers have gone for good.
	stopAsked, finished chan struct{}

	// Set by prepareLogger and prepareContexts, before there are workers.

	logger *slog.Logger // with the pool's name; nil means silence
	// starting is the context in which keys are started. It ends when no other key may be. Only Run's goroutine calls
	// endStarting, without mu, because it may call methods of Run's context.
	starting    context.Context
	endStarting context.CancelFunc
	// handling is the handlers' context.
	handling    context.Context
	endHandling context.CancelCauseFunc
	// firstCall is what the contexts of first attempts have in common.
	firstCall *callInfo

	// No foreign code runs under mu. No worker holds it while it waits for a key, handles one or calls Done. It also
	// guards the workers' fields.
	mu struct {
		sync.Mutex
		// target is how many workers are wanted, workers are those that exist: fewer only before
		// Run and after the end, more while surplus ones still handle their key.
		target  int
		workers []*worker[T]
		// endWatch ends watchForStuck while there are calls of Handle.
		endWatch func()
		// getting is the context of the workers' Gets. If there are too many workers it ends, and those that stay get a new one.
		getting    context.Context
		endGetting context.CancelFunc
		started    bool
		stopped    bool
		stop       Drain // if stopped
		exhausted  bool  // the queue is shut down, and had no key left when the last worker asked
		returned   bool  // Run has returned, or is about to
		fatal      error
		notStarted []T // keys that were got too late to be started
		// refused are the keys that their handlers want again at once and that the queue, which is shut down, does not take
		// back. They come again all the same if they were added before.
		refused   map[T]struct{}
		left      Left[T]
		counted   Stats // what count counts; the rest is zero
		durations observe.Histogram
	}
	// notGetting is signalled whenever a worker is not getting any more. Its lock is mu.
	notGetting sync.Cond
}

// New returns a pool that handles the keys of queue when Run is called. It starts nothing. Run reports senseless arguments.
func New[T comparable](queue workqueue.TypedRateLimitingInterface[T], handler Handler[T], options Options[T]) *Pool[T] {
	p := &Pool[T]{
		queue:      queue,
		handler:    handler,
		options:    options,
		anyFailing: make(chan struct{}, 1),
		stopAsked:  make(chan struct{}, 1),
		finished:   make(chan struct{}),
	}
	p.notGetting.L = &p.mu
	p.mu.refused = make(map[T]struct{})
	p.prepareHandle = sync.OnceValue(p.beginHandling)
	p.mu.durations = observe.NewHistogram(durationBuckets)
	p.options.setDefaults()
	p.failures.mu.failing.max, p.failures.mu.dropped.max = keepErrors, p.options.KeepDropped
	p.mu.target = p.options.Workers
	if queue != nil {
		p.getter = workqueue.Extend[T](queue)
		p.priorities, _ = queue.(PriorityQueue[T])
		p.leaser, _ = queue.(workqueue.Leaser[T])
		if p.options.Name == "" {
			p.options.Name = p.getter.Stats().Name
		}
	}
	if handler != nil {
		for _, wrap := range slices.Backward(options.Middleware) {
			p.handler = wrap(p.handler)
		}
	}
	return p
}

// check returns an error if Run cannot begin.
func (p *Pool[T]) check() error {
	errs := []error{p.options.check()}
	if p.begun.Load() {
		errs = append(errs, errRunTwice)
	}
	if p.handler == nil {
		errs = append(errs, errors.New("worker: the handler is nil"))
	}
	switch _, extended := p.queue.(workqueue.Extended[T]); {
	case p.queue == nil:
		errs = append(errs, errors.New("worker: the queue is nil"))
	case p.options.KeepQueue && !extended:
		errs = append(errs, errors.New("worker: Options.KeepQueue needs a queue that is Extended: a Get that is given up would keep its key"))
	}
	return errors.Join(errs...)
}

// Run starts the workers, and returns when they have ended or were given up, as the package comment describes: with nil unless
// there was a fatal error. [Pool.Left] has what was left undone. Of a queue that is shut down already, Run handles what is left.
//
// It returns an error at once, and leaves the queue alone, if the handler or the queue is nil, an option
// makes no sense, or Run was called before.
func (p *Pool[T]) Run(ctx context.Context) error {
	if ctx == nil {
		return errors.New("worker: Run without a context")
	}
	if err := p.begin(); err != nil {
		return err
	}
	p.guarded(p.prepareLogger)
	p.prepareContexts(ctx)
	p.guarded(p.watch)
	p.startWorkers()
	endWatch := p.watchForStuck()
	p.awaitStop(ctx)
	p.drain(ctx)
	p.giveUp(ctx)
	endWatch()
	p.finish()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.fatal
}

// begin returns an error if Run or Handle cannot begin, or has before.
func (p *Pool[T]) begin() error {
	if err := p.check(); err != nil || p.begun.CompareAndSwap(false, true) {
		return err
	}
	return errRunTwice
}

var errRunTwice = errors.New("worker: Run was called before on this pool")

func (p *Pool[T]) prepareLogger() {
	if p.logger = p.options.Logger; p.logger != nil && p.options.Name != "" {
		p.logger = p.logger.With("queue", p.options.Name)
	}
}

// prepareContexts makes the contexts that the workers need.
func (p *Pool[T]) prepareContexts(ctx context.Context) {
	values := context.WithoutCancel(ctx)
	p.handling, p.endHandling = context.WithCancelCause(values)
	p.firstCall = p.newCallInfo(p.handling)
	p.firstCall.ended = newOwnContext(p.handling)
	p.firstCall.ended.end(nil)
	parent := values
	if p.options.Drain != All {
		// When ctx has ended, no key that is added afterwards may be started: starting ends with it. This also cuts short Stop(All).
		parent = ctx
	}
	p.starting, p.endStarting = context.WithCancel(parent)
}

func (p *Pool[T]) startWorkers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.started = true
	p.mu.getting, p.mu.endGetting = context.WithCancel(p.starting)
	p.growLocked()
	p.endLocked() // It may have been stopped before, and have no worker.
}

// SetWorkers changes how many handlers run at once. More of them start at once; if there are too many, those that
// have no key end at once, and the others when their handlers have returned. A worker that is just getting a key
// while SetWorkers is called may still start its handler after SetWorkers has returned. With 0 the pool pauses, and
// Run goes on, also if somebody else shuts the queue down. It may be called before Run, and instead of
// Options.Workers. It returns an error if n is negative, and does nothing once Run has returned.
func (p *Pool[T]) SetWorkers(n int) error {
	if n < 0 {
		return fmt.Errorf("worker: SetWorkers of a negative number: %d", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.target = n
	if !p.mu.started {
		return nil
	}
	p.growLocked()
	if len(p.mu.workers) > n {
		// This wakes all workers that wait for a key. Each finds out in nextGet whether it is one too many, others when they are done.
		p.mu.endGetting()
		p.mu.getting, p.mu.endGetting = context.WithCancel(p.starting)
	}
	return nil
}

// growLocked starts workers until there are enough.
func (p *Pool[T]) growLocked() {
	for len(p.mu.workers) < p.mu.target && !isClosed(p.finished) {
		w := new(worker[T])
		p.mu.workers = append(p.mu.workers, w)
		go p.work(w)
	}
}

// locked runs f under mu.
func (p *Pool[T]) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// guarded runs f, which calls foreign code.
func (p *Pool[T]) guarded(f func()) {
	defer func() {
		if v := recover(); v != nil {
			p.panicked(v)
		}
	}()
	f()
}

// panicked is called with what was recovered from foreign code other than the handler.
func (p *Pool[T]) panicked(v any) {
	if p.options.CrashOnPanic || p.handles.Load() {
		panic(v)
	}
	p.fail(&PanicError{Value: v, Stack: debug.Stack()})
}

// Runner is something that runs until its context ends: a [Pool], whatever its keys are, or a [RunnerFunc].
type Runner interface {
	// Run runs until ctx ends, and then finishes what it has begun and returns. An error that it returns before is fatal.
	Run(ctx context.Context) error
}

// RunnerFunc is a function as a [Runner], for the parts of a program that belong to its workers: those that fill the queues.
type RunnerFunc func(ctx context.Context) error

// Run calls f.
func (f RunnerFunc) Run(ctx context.Context) error { return f(ctx) }

// Group runs several Runners as one. They start together and end together: when the context ends, or when one of them returns
// an error. One that returns nil before that does not end the others: so a Pool ends its group by a fatal error, and not
// because its queue was shut down or keys were left. A Runner that panics ends the process, as in any goroutine.
//
// The zero Group is empty and ready for use. A Group is a Runner itself.
type Group struct {
	mu      sync.Mutex // guards what follows
	runners []Runner
	started bool
}

// Add adds a Runner. It panics if r is nil or Run was called before.
func (g *Group) Add(r Runner) {
	if r == nil {
		panic("worker: Group.Add of nil")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		panic("worker: Group.Add after Run")
	}
	g.runners = append(g.runners, r)
}

// Run runs all that was added and returns when all have returned: nil, the error if there is one, or the errors joined, the one
// that came first at the front. If one of them is a Pool that cannot begin, because of bad input or a Run before, Run returns all
// such errors at once and starts nothing. It leaves out errors that only say that the context has ended.
func (g *Group) Run(ctx context.Context) error {
	if ctx == nil {
		return errors.New("worker: Run without a context")
	}
	runners, err := g.begin()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error)
	for _, r := range runners {
		go func() {
			// Deferred, so that a Runner that ends its goroutine does not leave the others alone.
			err := ErrGoexit
			defer func() { results <- err }()
			err = r.Run(ctx)
		}()
	}
	var errs []error
	for range runners {
		// A Runner that only says that its context has ended has not failed.
		if err := <-results; err != nil && err != ctx.Err() {
			errs = append(errs, err)
			cancel()
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// begin returns the runners, or an error if Run cannot begin. No other can be added from now on.
func (g *Group) begin() ([]Runner, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	g.started = true
	return g.runners, nil
}

// check returns an error if Run cannot begin.
func (g *Group) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checkLocked()
}

func (g *Group) checkLocked() error {
	if g.started {
		return errors.New("worker: Run was called before on this group")
	}
	var errs []error
	for _, r := range g.runners {
		if c, ok := r.(interface{ check() error }); ok {
			errs = append(errs, c.check())
		}
	}
	return errors.Join(errs...)
}
