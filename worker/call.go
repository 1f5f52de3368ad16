package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
)

// This file follows a call from the hand-out of its key to Done. The steps, in their order:
//
//	newCall     reads what the queue knows of the key, and makes the contexts
//	startLocked lets others see the call; then the caller calls the handler
//	decide      writes into result what becomes of the key, and gives a failure to the queue's Fail
//	settle      (pools only) adds the key again, hands it back, or makes the queue forget its failures
//	report      logs the call, and calls OnFinish
//	endCall     counts the call, and ends its contexts
//	doneOrHold  calls the queue's Done, or puts the key on hold (see hold.go)
//
// A pool takes them in handleKey and callHandler. Of a [Tracker], Begin takes the first two, End the others
// up to endCall, and Done the last.

// Tracked is a call as its tracker sees it, from [Tracker.Begin] to [Tracked.Done]. [Call] is the handler's
// view of it.
type Tracked[T comparable] struct {
	tracker *Tracker[T]
	base    context.Context // the parent of the call's contexts

	// newCall sets these, and then they do not change.

	handOut       workqueue.HandOut[T]
	ctx, callCtx  context.Context
	cancel        context.CancelCauseFunc // of callCtx
	cancelTimeout context.CancelFunc      // nil without a HandlerTimeout
	leaseParent   context.Context         // from which ctx was made; nil without a lease
	releaseLease  context.CancelFunc      // nil without a lease
	lostBefore    bool                    // the key's lease had ended before the handler could be called
	goroutine     string                  // its number, empty without StuckAfter

	// The goroutine that makes the call owns these. (Others read result.Key and result.Started.)

	result   Result[T]
	asked    request         // by the handler's error
	retry    workqueue.Retry // what the queue has answered to a failure
	slowDown time.Duration   // of an interrupted key that comes at once too often: how long it is on hold

	// The tracker's mu guards what follows.

	running         bool      // from start to endCall
	atOnce          int       // calls in a row before this one, see Call.AtOnce
	changeSince     time.Time // when the change that the call answers began (see records.go), or zero
	stuck, canceled bool      // see RunningKey
	stack           string    // of a stuck call
	adds            addWatch
	hold            *hold[T] // nil unless the handler has arranged one; after endCall it does not change
}

// newCall makes a call of what the queue has handed out, with its contexts.
func (t *Tracker[T]) newCall(base context.Context, h workqueue.HandOut[T]) *Tracked[T] {
	t.dropExpiredRecords()
	attempt := h.Failures.Count + 1
	c := &Tracked[T]{tracker: t, base: base, handOut: h, goroutine: t.currentGoroutine(), changeSince: h.AddedAt,
		atOnce: h.AtOnce, result: Result[T]{Key: h.Key, Attempt: attempt, Started: t.options.Clock.Now()}}
	c.makeContext()
	if c.lostBefore = c.hasLostLease(); c.lostBefore {
		t.logger.WarnContext(base, "The lease of a key ended before its handler was called", "key", h.Key)
	}
	return c
}

// The contexts of a call, each made from the one above:
//
//	base              the pool's poolCtx (see prepareContexts), or what Tracker.Begin gets
//	                  with a value, for CallOf
//	callCtx           ends with the call, and by Cancel
//	HandlerTimeout    if there is one
//	the key's lease   if the queue is a leasing.Leaser
//	-- the handler gets the context made so far --
//	UntilAdded        also ends when the key is added again

// makeContext makes the handler's context.
func (c *Tracked[T]) makeContext() {
	t := c.tracker
	ctx, cancel := context.WithCancelCause(context.WithValue(c.base, callKey{}, anyCall(c)))
	c.callCtx, c.cancel, c.ctx = ctx, cancel, ctx
	if t.options.HandlerTimeout > 0 {
		c.ctx, c.cancelTimeout = withTimeout(c.ctx, t.options.Clock, t.options.HandlerTimeout)
	}
	if t.leaser != nil {
		c.leaseParent = c.ctx
		c.ctx, c.releaseLease = t.leaser.Lease(c.leaseParent, c.result.Key)
	}
}

// endContext ends the handler's context, also for a handler that has kept it.
func (c *Tracked[T]) endContext() {
	if c.releaseLease != nil {
		c.releaseLease()
	}
	if c.cancelTimeout != nil {
		c.cancelTimeout()
	}
	c.cancel(nil)
}

// hasLostLease reports whether the key's lease has ended, and not the context that it was made from.
func (c *Tracked[T]) hasLostLease() bool {
	return c.leaseParent != nil && c.ctx.Err() != nil &&
		(c.leaseParent.Err() == nil || !errors.Is(context.Cause(c.ctx), context.Cause(c.leaseParent)))
}

// startLocked makes c one of the running calls. From here on others see it.
func (t *Tracker[T]) startLocked(c *Tracked[T]) {
	c.readRecordLocked()
	t.mu.running = append(t.mu.running, c)
	t.mu.mostRunning = max(t.mu.mostRunning, len(t.mu.running))
	c.running = true
	if t.mu.endWatch == nil && t.options.StuckAfter > 0 {
		t.mu.endWatch = t.watchForStuck()
	}
}

// handleKey does all with a key that a worker has got.
func (p *Pool[T]) handleKey(w *worker[T], h workqueue.HandOut[T]) {
	c := p.tracker.newCall(p.poolCtx, h)
	if p.startCall(w, c) {
		p.callHandler(c)
		return
	}
	if !c.lostBefore { // Otherwise another process may have the key.
		p.handBack(c, c.atOnce) // Somebody else may handle it, such as another pool.
	}
	c.endContext()
	p.done(h.Key)
}

// startCall begins the call of w. It returns false if the lease is lost or no key is started any more.
func (p *Pool[T]) startCall(w *worker[T], c *Tracked[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.getting, w.call = false, c
	if c.lostBefore || !p.mayStartLocked() {
		p.wakeRun() // endQueue may wait for w.
		return false
	}
	delete(p.mu.notStarted, c.result.Key) // It has come nevertheless, by an earlier add.
	p.tracker.startLocked(c)
	return true
}

// callHandler calls the handler and does what its error asks for, also if it panics or ends the goroutine.
// Panics of other code are not caught.
func (p *Pool[T]) callHandler(c *Tracked[T]) {
	err := ErrGoexit
	defer func() {
		if v := recover(); v != nil {
			if p.options.CrashOnPanic {
				p.tracker.logger.ErrorContext(c.base, "The handler panicked", "key", c.result.Key, "panic", v)
				panic(v) // The stack that the runtime prints is still that of the handler.
			}
			err = &PanicError{v, debug.Stack()} // Here, because the deferred function has the panic's stack.
		}
		c.decide(err)
		p.settle(c)
		if c.asked.fatal {
			p.fail(c.result.Err)
		}
		c.report()
		c.endCall()
		c.doneOrHold(p.done)
	}()
	err = p.handler(c.ctx, c.result.Key)
}

// requestOf returns what the handler's error asks for now.
func (c *Tracked[T]) requestOf(err error) request {
	asked := readAnswer(err, err != nil && c.wasAdded())
	_, panicked := err.(*PanicError)
	switch mayRetry := asked.next == NextRetry && !panicked && err != ErrGoexit; {
	case c.hasLostLease():
		return request{next: NextLost, fatal: asked.fatal}
	case c.base.Err() != nil && (mayRetry || asked.next == NextInterrupted):
		return request{next: NextInterrupted, handBack: true} // Its context's end may be all that went wrong.
	}
	return asked
}

// decide writes into result what becomes of the key, by the error that the handler has returned.
func (c *Tracked[T]) decide(err error) {
	t, r := c.tracker, &c.result
	asked := c.requestOf(err)
	r.Duration = t.options.Clock.Since(r.Started)
	if asked.every > 0 {
		asked.after = t.untilMoment(r.Key, asked.every, t.options.Clock.Now())
	}
	c.asked, r.Err, r.Next, r.After, r.Priority = asked, err, asked.next, asked.after, asked.priority
	if r.Next.failed() {
		c.countFailure()
	}
	t.recordOutcome(c)
}

// countFailure lets the queue count the failure, and add the key or give it up. The queue may find that the
// lease is lost.
func (c *Tracked[T]) countFailure() {
	t, r := c.tracker, &c.result
	// Without a deadline: a queue with a server bounds its wait itself.
	retry, err := t.queue.Fail(context.Background(), r.Key, workqueue.Failure{Err: r.Err, AtLeast: r.After,
		MaxRetries: t.options.MaxRetries, RetryFor: t.options.RetryFor, Terminal: r.Next == NextGiveUp})
	switch {
	case errors.Is(err, leasing.ErrLost):
		r.Next, r.After = NextLost, 0
		return
	case err != nil:
		t.logger.Debug("The queue's server has not answered to a failure", "key", r.Key, "err", err)
	}
	c.retry, r.Attempt = retry, retry.Attempt
	if retry.GivenUp {
		r.Next = NextGiveUp
	} else if err == nil && !retry.Same { // Without an answer the delay is not known.
		t.mu.Lock()
		defer t.mu.Unlock()
		t.mu.retryDelays.Observe(retry.Delay)
	}
}

// settle does in the queue what has been decided.
func (p *Pool[T]) settle(c *Tracked[T]) {
	r := &c.result
	switch r.Next {
	case NextForget:
		if p.tracker.answerer != nil {
			p.tracker.answerer.Succeed(r.Key)
		} else {
			p.queue.Forget(r.Key)
		}
	case NextRequeue:
		p.addAgain(c)
		p.queue.Forget(r.Key)
	case NextInterrupted:
		switch {
		case c.asked.handBack:
			p.handBack(c, r.AtOnce)
		case !c.Interrupted(): // ErrAdded came from elsewhere, so perhaps no add brings the key.
			p.addAgain(c)
		}
	}
}

// addAgain adds the key after the delay, and with the priority, that result has.
func (p *Pool[T]) addAgain(c *Tracked[T]) {
	priority := c.handOut.Priority
	if c.result.Priority != nil {
		priority = *c.result.Priority
	}
	p.addAfter(c.result.Key, priority, c.result.After)
}

// addAfter adds a key of this pool. After the shutdown the queue refuses it.
func (p *Pool[T]) addAfter(key T, priority int, after time.Duration) {
	switch t := p.tracker; {
	case t.answerer != nil:
		t.answerer.Requeue(key, priority, after)
	case t.priorities != nil:
		t.priorities.AddWithPriority(key, priority, after)
	default:
		p.queue.AddAfter(key, after)
	}
	if p.tracker.answerer == nil && after <= 0 && p.queue.ShuttingDown() { // A server takes the key.
		p.noteNotStarted(key)
	}
}

func (p *Pool[T]) noteNotStarted(key T) {
	p.locked(func() { p.mu.notStarted[key] = struct{}{} })
}

// handBack adds the key again as it came: with its causes, its priority, and the failures that it has. atOnce
// is how many calls for it in a row wanted it again at once.
func (p *Pool[T]) handBack(c *Tracked[T], atOnce int) {
	key, priority := c.result.Key, c.handOut.Priority
	if p.tracker.answerer != nil {
		p.tracker.answerer.HandBack(key, atOnce)
		return
	}
	causes := p.queue.Causes(key)
	p.addAfter(key, priority, 0)
	// An add with a cause has priority 0, and the higher one counts. So a key below 0 loses its causes.
	if priority >= 0 {
		for _, cause := range causes.Last {
			p.queue.AddCause(key, cause)
		}
	}
}

// report logs the call, and calls OnFinish.
func (c *Tracked[T]) report() {
	o := &c.tracker.options
	c.logCall()
	if o.OnFinish != nil {
		o.OnFinish(c.ctx, c.result)
	}
}

// endCall counts the call and ends its contexts. The last running call ends the watch for stuck ones.
func (c *Tracked[T]) endCall() {
	t := c.tracker
	calls := 0
	t.mu.Lock()
	if c.running { // Otherwise End was called before.
		calls = t.countLocked(c)
		i := slices.Index(t.mu.running, c)
		t.mu.running = slices.Delete(t.mu.running, i, i+1)
		c.running = false
		if len(t.mu.running) == 0 && t.mu.endWatch != nil {
			t.mu.endWatch()
			t.mu.endWatch = nil
		}
	}
	t.mu.Unlock()
	c.endContext()
	if calls > 1 && isPowerOfTwo(calls) {
		c.noteCauses()
	}
}

// noteCauses notes why the key came, which is called often: see BusyKey.
func (c *Tracked[T]) noteCauses() {
	t, r := c.tracker, &c.result
	if causes := t.queue.Causes(r.Key); !causes.IsZero() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.mu.busiest.SetCauses(r.Key, r.Started.Add(r.Duration), causes)
	}
}

// What follows is what a handler reads of its call: see anyCall.

func (c *Tracked[T]) isRunning() bool {
	c.tracker.mu.Lock()
	defer c.tracker.mu.Unlock()
	return c.running
}

func (c *Tracked[T]) info() (i callInfo) {
	c.tracker.mu.Lock()
	defer c.tracker.mu.Unlock()
	if c.running {
		f := c.handOut.Failures
		i = callInfo{f.Count + 1, c.handOut.Priority, c.atOnce, c.tracker.priorities != nil, f.Since}
	}
	return i
}

func (c *Tracked[T]) lastAttempt() bool {
	t := c.tracker
	o := &t.options
	if !c.isRunning() || o.MaxRetries == UnlimitedRetries && o.RetryFor == 0 || c.base.Err() != nil {
		return false
	}
	f := t.queue.Failures(c.result.Key)
	isOld := o.RetryFor > 0 && f.Count > 0 && o.Clock.Since(f.Since) > o.RetryFor
	return f.Left == 0 && (isOld || o.MaxRetries != UnlimitedRetries && f.Count >= max(0, o.MaxRetries))
}

func (c *Tracked[T]) logger() *slog.Logger {
	if c.isRunning() {
		return c.tracker.logger.With("key", c.result.Key)
	}
	return c.tracker.logger
}

func (c *Tracked[T]) causes() (causes workqueue.Causes) {
	if c.isRunning() {
		causes = c.tracker.queue.Causes(c.result.Key)
	}
	return causes
}
