package worker

import "context"

// Handle handles key in the caller's goroutine, as a worker of the pool would, and returns what has come of it. It is for a
// program, or a library, that has workers of its own: they get keys from the queue, call Handle, and then Done. All else is as
// in a pool that runs: the handler's context, attempts and retries, hooks, Stats, Snapshot, Cancel and stuck handlers. The
// handler's context is made from ctx. If the key's lease has ended already, the handler is not called, and the result is
// NextInterrupted with the cause of that end.
//
// A panic of the handler goes on when all this is done, and so does runtime.Goexit. A panic of a hook, the logger, the clock or
// the queue goes to the caller, too, but one of OnStuck ends the program. Options.Workers, Drain and the other options of the
// end mean nothing. A provider of metrics does not discover the pool: see [Inspect].
//
// Use either Run or Handle: once Handle was called, Run returns an error; once Run was called, Handle panics. It also panics
// if the arguments of [New] make no sense.
func (p *Pool[T]) Handle(ctx context.Context, key T) Result[T] {
	if err := p.prepareHandle(); err != nil {
		panic(err)
	}
	w := p.join()
	defer p.leave(w)
	c := call[T]{Result: Result[T]{Key: key}, rethrows: true}
	defer c.end()
	p.prepare(w, &c, &callInfo{pool: p, handling: ctx, attempt: 1, prioritized: p.priorities != nil, logger: p.logger})
	if c.lost {
		c.Next, c.Err = NextInterrupted, context.Cause(c.ctx)
		return c.Result
	}
	c.base.need() // The parent knows it from the beginning, so that it ends with the call in any case.
	p.locked(func() { p.setHandlingLocked(w, &c) })
	p.handle(&c)
	return c.Result
}

// beginHandling is called by the first Handle. It returns an error if there can be none.
func (p *Pool[T]) beginHandling() error {
	if err := p.begin(); err != nil {
		return err
	}
	p.handles.Store(true)
	p.prepareLogger()
	p.handling = context.Background()
	return nil
}

// sweepNow forgets what is stale, if that was done long ago. In a pool that runs, awaitStop does it.
func (p *Pool[T]) sweepNow() {
	now := p.options.Clock.Now().UnixNano()
	last := p.lastSweep.Load()
	if p.failures.failing.Load() > 0 && now-last >= int64(sweepEvery) && p.lastSweep.CompareAndSwap(last, now) && last != 0 {
		go p.sweepFailures(func() bool { return false })
	}
}

// join adds a worker for the caller's goroutine to the pool.
func (p *Pool[T]) join() *worker[T] {
	p.sweepNow()
	w := &worker[T]{contexts: make([]callContext, 1)}
	p.locked(func() {
		p.mu.workers = append(p.mu.workers, w)
		if len(p.mu.workers) == 1 {
			p.mu.endWatch = p.watchForStuck()
		}
	})
	p.noteGoroutine(w)
	return w
}

func (p *Pool[T]) leave(w *worker[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(w)
	if len(p.mu.workers) == 0 {
		p.mu.endWatch()
	}
}

// NextOf returns, for a middleware, what becomes of the key if its call returns err. A failure is NextRetry even if the key
// will be dropped for having failed too often. The context is that of the call or made from it.
func NextOf(ctx context.Context, err error) Next {
	c := call[struct{}]{Result: Result[struct{}]{Err: err}, ctx: ctx, base: callOf(ctx)}
	switch {
	case err == nil:
		return NextForget
	case c.readAnswer():
		return c.Next
	}
	return NextRetry
}
