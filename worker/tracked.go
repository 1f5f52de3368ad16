package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyedqueue/workqueue"
)

// The steps of a call, in their order. The first two are Begin of a [Tracker], the last one is Done, and
// those between are End. A pool takes them in handle_key.go, with settle between.
//
//	prepare        reads what the queue knows of the key, and makes the contexts
//	addRunning     lets others see the call; then the caller calls the handler
//	decide         writes into result what becomes of the key, and gives a failure to the queue's Fail
//	recordOutcome  updates the key's record
//	(settle)       adds the key again, or makes the queue forget its failures
//	report         logs the call, and calls the hooks
//	endCall        counts the call, and ends its contexts
//	doneOrHold     calls the queue's Done, or puts the key on hold

// Tracked is a call of a handler, from [Tracker.Begin] to [Tracked.Done]. (A pool's worker has one for all
// its calls, one after the other.)
type Tracked[T comparable] struct {
	tracker *Tracker[T]     // does not change, and neither does base
	base    context.Context // the parent of the calls' contexts

	// The goroutine that makes the calls owns what follows. While running is set it does not write what prepare
	// has set (result.Key, result.Started, attempt, priority, callCtx, ctx): others read that under mu.

	contexts []callContext[T] // for the next calls
	callState[T]

	// The tracker's mu guards what follows. (prepare sets changeSince without it: the call is not running yet.)

	running         bool      // from addRunning to endCall
	index           int       // in the tracker's running
	changeSince     time.Time // when the change that the call answers began (see unanswered.go), or zero
	stuck, canceled bool      // see RunningKey
	stack           string    // of a stuck call
	goroutine       string    // the number of the goroutine, empty without StuckAfter
	// reasons are what Done must wait for: the handler's holds, and a pause of pauseIfLooping. After endCall
	// no other goroutine uses them.
	reasons []*holdReason
}

// callState is what the goroutine of a call knows.
type callState[T comparable] struct {
	result   Result[T] // what hooks see
	attempt  int       // what the handler sees; result.Attempt changes when a failure is counted
	priority int       // of the key in a operate.Operable, when the call began
	callCtx  *callContext[T]
	ctx      context.Context    // callCtx, or made from it
	cancel   context.CancelFunc // nil without a HandlerTimeout or a lease
	fatal    bool               // The handler's error wants Run to end.

	leaseParent context.Context // from which ctx was made; nil without a lease
	leaseLost   bool            // the key's lease had ended before the handler could be called
	crashing    bool            // see failWithPanic
	sameFailure bool            // see Same of workqueue.Retry

	interruptions int // how many in a row, after an interrupted call; for pauseIfLooping
}

// Begin begins a call of the handler for key, which the caller has got from the queue. The handler's context,
// [Tracked.Context], is made from ctx. A key may be in one call at a time. Over a [lease.Leaser], such
// as a queue in Redis, that context may have ended already although ctx has not: the lease was lost, and
// another process may have got the key. So test it before the handler is called. End then ignores what it is
// given, counts nothing, and returns NextInterrupted with the context's cause.
func (t *Tracker[T]) Begin(ctx context.Context, key T) *Tracked[T] {
	c := &Tracked[T]{tracker: t, base: ctx, contexts: make([]callContext[T], 1)}
	c.noteGoroutine()
	t.sweepIfDue()
	c.prepare(key)
	if c.leaseLost {
		return c
	}
	t.addRunning(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.endWatch == nil {
		t.mu.endWatch = t.watchForStuck()
	}
	return c
}

// Context returns the handler's context. It ends with the call, and earlier by Options or [Tracker.Cancel].
func (c *Tracked[T]) Context() context.Context { return c.ctx }

// Interrupted reports, before End, whether a context of [Call.UntilAdded] has ended because the key was added
// again. If not, and End returns NextInterrupted all the same, perhaps no add brings the key.
func (c *Tracked[T]) Interrupted() bool { return c.callCtx.wasInterrupted() }

// End ends the call, whose handler has returned err, counts it, logs it and calls the hooks. It must be
// called once, and before the queue's Done. If the handler has panicked, err must be a [*PanicError]; if it
// has called runtime.Goexit, [ErrGoexit].
func (c *Tracked[T]) End(err error) Result[T] {
	defer c.endCall()
	if c.leaseLost {
		c.result.Err, c.result.Next = context.Cause(c.ctx), NextInterrupted
		return c.result
	}
	c.result.Err = err
	c.decide()
	c.tracker.recordOutcome(c)
	c.report()
	return c.result
}

// Held reports, after End, whether the key must be held. See [Tracked.Done].
func (c *Tracked[T]) Held() bool { return len(c.reasons) > 0 }

// Done must be called after End and after the adds of the key, with a function that calls the queue's Done.
// That is called once, on any goroutine: at once or, if the key is put on hold, when the hold ends: by a
// release, at its limit, by [Tracker.Release] or [Tracker.EndHolds], or as the package comment says.
func (c *Tracked[T]) Done(done func()) { c.doneOrHold(func(T) { done() }) }

// prepare reads what the queue knows of the key, and makes the handler's context.
func (c *Tracked[T]) prepare(key T) {
	t := c.tracker
	c.callState = callState[T]{result: Result[T]{Key: key}} // First: Done needs it if the queue panics below.
	failed := t.queue.Failures(key).Count
	if t.priorities != nil {
		c.priority = t.priorities.PriorityOf(key)
	}
	if t.knowsAddTimes {
		c.changeSince = t.queue.AddedAt(key)
	}
	c.attempt, c.result.Started = failed+1, t.options.Clock.Now()
	c.result.Attempt = c.attempt
	c.makeContext()
}

// endCall counts the call if it was started, ends its contexts, and pauses a key that loops.
func (c *Tracked[T]) endCall() {
	if c.crashing {
		return
	}
	t := c.tracker
	t.mu.Lock()
	if c.running {
		t.countLocked(c)
		t.removeRunningLocked(c)
	}
	t.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
	if c.callCtx != nil { // The queue may have panicked before there was one.
		c.callCtx.end()
	}
	c.pauseIfLooping()
}

// decide writes into result what becomes of the key, by the error that the handler has returned.
func (c *Tracked[T]) decide() {
	r := &c.result
	r.Duration = c.tracker.options.Clock.Since(r.Started)
	var asked request // without an error: NextForget
	if r.Err != nil {
		asked = c.readError()
	}
	if asked.every > 0 {
		asked.after = c.tracker.untilMoment(r.Key, asked.every, c.tracker.options.Clock.Now())
	}
	r.Next, r.After, r.Priority, c.fatal = asked.next, asked.after, asked.priority, asked.fatal
	if r.Next.failed() {
		c.countFailure()
	}
}

// failTimeout bounds the wait for a server that counts the failures. A late server still gets the failure.
const failTimeout = time.Second

// countFailure lets the queue count the failure, and add the key or give it up.
func (c *Tracked[T]) countFailure() {
	t, r := c.tracker, &c.result
	f := workqueue.Failure{Err: r.Err, AtLeast: r.After, MaxRetries: t.options.MaxRetries,
		Terminal: r.Next == NextGiveUp}
	leaseEnded := t.leaser != nil && c.ctx.Err() != nil && c.leaseParent.Err() == nil
	if c.base.Err() != nil || leaseEnded {
		f.MaxRetries = UnlimitedRetries // The call may have failed only because its context has ended.
	}
	ctx := context.Background()
	if t.leaser != nil {
		timed, cancel := context.WithTimeout(ctx, failTimeout)
		defer cancel()
		ctx = timed
	}
	retry, err := t.queue.Fail(ctx, r.Key, f)
	if err != nil {
		t.log(ctx, slog.LevelDebug, "The queue's server has not answered to a failure", "key", r.Key, "err", err)
	}
	r.Attempt, c.sameFailure = retry.Attempt, retry.Same
	if retry.GivenUp {
		r.Next = NextGiveUp
	}
}

// readError returns what the handler's error asks for. The error's methods are the handler's code: if one of
// them panics, the call has failed with that panic.
func (c *Tracked[T]) readError() (asked request) {
	defer func() {
		if v := recover(); v != nil {
			c.failWithPanic(v)
			asked = request{next: NextRetry}
		}
	}()
	var holds []*holdReason
	asked, holds = classify(c.result.Err, c.callCtx.wasInterrupted())
	for _, r := range holds { // Each is for one call. Those that are new hold the key all the same.
		if r.used.Swap(true) {
			c.result.Err = fmt.Errorf("%w: %w", errHoldTwice, c.result.Err)
			asked = request{next: NextRetry, after: asked.after}
		} else {
			c.callCtx.addReason(r)
		}
	}
	return asked
}

// report logs the call, and calls the hooks.
func (c *Tracked[T]) report() {
	o := &c.tracker.options
	c.logCall()
	if c.result.Next == NextGiveUp && o.OnGiveUp != nil {
		o.OnGiveUp(c.ctx, c.result)
	}
	if o.OnFinish != nil {
		o.OnFinish(c.ctx, c.result)
	}
}
