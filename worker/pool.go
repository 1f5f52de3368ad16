package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/keyedqueue/workqueue"
)

// Run handles the keys of queue until ctx ends, as the package comment describes. It is Run of a [New]
// pool.
func Run[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], handler func(ctx context.Context, key T) error, options Options[T]) error {
	return New(queue, handler, options).Run(ctx)
}

// Pool runs a handler in a number of workers that can be changed. It is made by [New]. All methods may
// be called from any goroutine, handlers and hooks included, except that Run must not be called by those.
type Pool[T comparable] struct {
	queue   workqueue.TypedRateLimitingInterface[T]
	handler func(ctx context.Context, key T) error
	options Options[T]
	invalid error // what Run says to options

	// begun is set by the first Run.
	begun atomic.Bool

	// Set by prepare, before there are workers.

	getter workqueue.Extended[T] // queue, or made of it
	logger *slog.Logger          // with the queue's name; nil means silence
	// starting is the context in which keys are started. It ends when no other key may be.
	starting    context.Context
	endStarting context.CancelFunc
	// handling is the handlers' context.
	handling    context.Context
	endHandling context.CancelCauseFunc
	// firstCall is the context of all first attempts if there is no logger: they differ in nothing.
	firstCall context.Context

	failures failures[T]
	// stopping is closed when stop is first set, and finished when ended is.
	stopping, finished chan struct{}

	// mu guards what follows and the workers. No foreign code runs under it, and no worker holds it while
	// it waits for a key, handles one or calls Done.
	mu sync.Mutex
	// notGetting is signalled whenever a worker is not getting any more.
	notGetting sync.Cond
	// target is how many workers are wanted, workers are those that exist: fewer only before
	// Run and after the end, more while surplus ones still handle their key.
	target  int
	workers []*worker[T]
	// getting is the context of the workers' Gets. When there are too many workers it ends, and those
	// that stay get a new one.
	getting    context.Context
	endGetting context.CancelFunc
	started    bool
	stop       stopMode
	exhausted  bool // the queue is shut down, and had no key left when the last worker asked
	ended      bool // there are no workers, and there never will be
	fatal      error
	notStarted []T // keys that were got too late to be started
}

// stopMode is how a pool was told to stop. The larger one of two counts.
type stopMode uint8

const (
	goOn         stopMode = iota
	finishQueue           // All
	startNothing          // Running
)

// New returns a pool that handles the keys of queue when Run is called. It starts nothing. If one of the
// arguments makes no sense, Run says so.
func New[T comparable](queue workqueue.TypedRateLimitingInterface[T], handler func(ctx context.Context, key T) error, options Options[T]) *Pool[T] {
	p := &Pool[T]{
		queue:    queue,
		handler:  handler,
		invalid:  options.check(),
		options:  options,
		stopping: make(chan struct{}),
		finished: make(chan struct{}),
	}
	p.notGetting.L = &p.mu
	p.options.setDefaults()
	p.target = p.options.Workers
	return p
}

// check returns an error if Run cannot begin.
func (p *Pool[T]) check() error {
	errs := []error{p.invalid}
	if p.begun.Load() {
		errs = append(errs, errRunTwice)
	}
	if p.handler == nil {
		errs = append(errs, errors.New("worker: the handler is nil"))
	}
	if p.queue == nil {
		errs = append(errs, errors.New("worker: the queue is nil"))
	} else if p.queue.ShuttingDown() {
		errs = append(errs, fmt.Errorf("worker: the queue cannot be used: %w", workqueue.ErrShutDown))
	}
	return errors.Join(errs...)
}

// Run starts the workers, and returns when they have ended or were given up, as the package comment
// describes. It returns nil if nothing was left undone, and otherwise an error that is, or has joined in
// it, the fatal error that ended it and a [ShutdownError].
//
// It returns an error at once, and leaves the queue alone, if the handler or the queue is nil, an option
// is negative, the queue is shut down, or Run was called before.
func (p *Pool[T]) Run(ctx context.Context) error {
	if ctx == nil {
		return errors.New("worker: Run without a context")
	}
	if err := p.check(); err != nil {
		return err
	}
	if !p.begun.CompareAndSwap(false, true) {
		return errRunTwice
	}
	p.prepare(ctx)
	p.start()
	stuck := p.watchForStuck()
	p.untilEnd(ctx)
	p.untilGivenUp()
	stuck.end()
	return p.finish()
}

var errRunTwice = errors.New("worker: Run was called before on this pool")

// prepare does what start needs and what must not be done under mu.
func (p *Pool[T]) prepare(ctx context.Context) {
	p.getter = workqueue.Extend[T](p.queue)
	if p.options.Name == "" {
		p.options.Name = p.getter.Stats().Name
	}
	if p.logger = p.options.Logger; p.logger != nil && p.options.Name != "" {
		p.logger = p.logger.With("queue", p.options.Name)
	}
	values := context.WithoutCancel(ctx)
	p.handling, p.endHandling = context.WithCancelCause(values)
	p.firstCall = &callContext{Context: p.handling, attempt: 1}
	if p.options.Drain == Running {
		// A child, so that whoever has ended ctx knows that no key that is added later is started (unless ctx
		// is of a type of the caller's own: its end takes a goroutine to get here). It also cuts short what
		// Stop(All) has begun.
		values = ctx
	}
	p.starting, p.endStarting = context.WithCancel(values)
}

// start starts the workers.
func (p *Pool[T]) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
	if p.stop == startNothing {
		p.endStarting()
	}
	p.getting, p.endGetting = context.WithCancel(p.starting)
	p.growLocked()
	p.endLocked() // It may have been stopped before, and have no worker.
}

// SetWorkers changes how many handlers run at once. More of them start at once; if there are too many,
// those that have no key end at once, and the others when their handlers have returned. A worker that is
// just getting a key while SetWorkers is called may still start its handler after SetWorkers has returned.
// With 0 the pool pauses, and Run goes on, also if somebody else shuts the queue down. It may be called
// before Run, and instead of Options.Workers. It returns an error if n is negative, and does nothing once
// Run has returned.
func (p *Pool[T]) SetWorkers(n int) error {
	if n < 0 {
		return fmt.Errorf("worker: SetWorkers of a negative number: %d", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = n
	if !p.started {
		return nil
	}
	p.growLocked()
	if len(p.workers) > n {
		// Wakes all that wait for a key. Each looks whether it is one too many, and so do those that
		// handle a key, afterwards. See stays.
		p.endGetting()
		p.getting, p.endGetting = context.WithCancel(p.starting)
	}
	return nil
}

// growLocked starts workers until there are enough.
func (p *Pool[T]) growLocked() {
	for len(p.workers) < p.target && !p.ended {
		w := new(worker[T])
		p.workers = append(p.workers, w)
		go p.work(w)
	}
}

// Stop makes Run end, as the end of its context does, but with the given Drain. It does not wait. It
// can be called any number of times, also before Run. Running after All, from Stop or from the end of the
// context, gives up what is still queued; the time that is left to finish stays the same.
func (p *Pool[T]) Stop(drain Drain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLocked(drain)
}

func (p *Pool[T]) stopLocked(drain Drain) {
	mode := startNothing
	if drain == All {
		mode = finishQueue
	}
	if mode <= p.stop {
		return
	}
	if p.stop == goOn {
		close(p.stopping)
	}
	p.stop = mode
	if !p.started {
		return
	}
	if mode == startNothing {
		p.endStarting()
	}
	p.endLocked()
}

// endLocked ends the pool if it has stopped and there are no workers.
func (p *Pool[T]) endLocked() {
	if !p.ended && len(p.workers) == 0 && (p.exhausted || p.stop != goOn) {
		p.ended = true
		close(p.finished)
	}
}

// fail ends the pool because of err. Of several errors the first one counts.
func (p *Pool[T]) fail(err error) {
	p.mu.Lock()
	first := p.fatal == nil
	if first {
		p.fatal = err
	}
	p.stopLocked(Running)
	p.mu.Unlock()
	if first && p.logger != nil {
		p.guarded(func() { p.logger.Error("The workers end because of a fatal error", "err", err) })
	}
}
