package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// A handler's context ends with its call, and with Run if the handler has not returned by then. If Run ends
// it, its [context.Cause] is ErrDrainTimeout, ErrStopped or, if Run's context has ended and Options.Drain is
// [Nothing], that of Run's context.
var (
	// ErrDrainTimeout is the cause when Options.DrainTimeout is over.
	ErrDrainTimeout = errors.New("worker: the handler did not finish within Options.DrainTimeout")
	// ErrStopped is the cause after [Pool.Stop] of [Nothing].
	ErrStopped = errors.New("worker: the pool was stopped, and does not wait for its handlers")
	// ErrCanceled is the cause after [Pool.Cancel].
	ErrCanceled = errors.New("worker: Cancel was called for the key")
	// ErrAdded is the cause for contexts of [Call.UntilAdded]. It is no failure: see [NextInterrupted].
	ErrAdded = errors.New("worker: the key was added again")
)

// Call is a running call of a handler, as the handler sees it. After the call, and for the zero Call, there
// is no attempt, priority or cause. All methods may be called from any goroutine. Over a queue on a server
// UntilAdded may wait for that, up to a second, and so may LastAttempt after the lease was lost.
type Call struct {
	ctx context.Context
	anyCall
}

// CallOf returns the call whose context ctx is, or is made from.
func CallOf(ctx context.Context) Call {
	c, _ := ctx.Value(callKey{}).(anyCall)
	return Call{ctx, c}
}

// callKey is the key in a handler's context of the *Tracked, which is an anyCall.
type callKey struct{}

// anyCall is what a Call needs of its *Tracked. It hides the type of the key.
type anyCall interface {
	view() callView
	logger() *slog.Logger
	causes() workqueue.Causes
	lastAttempt() bool
	untilAdded(ctx context.Context) context.Context
	arrangeHold(reason string, limit time.Duration) (release func())
	read(err error) request
}

// callView is what a handler may read of its running call. It is zero without a call and after its end.
type callView struct {
	attempt, priority, atOnce int
	hasPriority               bool
	failingSince              time.Time
}

func (c Call) view() (v callView) {
	if c.anyCall != nil {
		v = c.anyCall.view()
	}
	return v
}

// Attempt returns the number of this attempt: 1, and one more for each failure in a row before this call.
func (c Call) Attempt() int { return c.view().attempt }

// AtOnce returns how many calls for the key in a row, before this one, wanted it again at once: they were
// interrupted (see [NextInterrupted]) or have asked for that with [RequeueAfter], and no hold of a
// millisecond or more followed. A call with any other answer ends the row. Over redisqueue a call that the
// end of a process has interrupted counts in the next process as well, so that a handler which never fits
// between two deploys shows.
//
// After the sixth in a row the key is slowed down: it comes 5 ms later, then 10 ms and so on up to 10 s. See
// also Stats.Looping.
func (c Call) AtOnce() int { return c.view().atOnce }

// FailingSince returns when the first of the failures in a row before this call happened: zero if the last
// call has not failed.
func (c Call) FailingSince() time.Time { return c.view().failingSince }

// LastAttempt reports whether the key is given up if this call fails now: it has failed Options.MaxRetries
// times, or for longer than RetryFor, the delay after the last failure has passed, and the pool has not ended
// the contexts of its calls. Over a queue that processes share, the failures of all count.
func (c Call) LastAttempt() bool { return c.anyCall != nil && c.lastAttempt() }

// Priority returns the key's priority when the call began, or false if the queue is no [operate.Operable].
func (c Call) Priority() (priority int, ok bool) {
	v := c.view()
	return v.priority, v.hasPriority
}

// Logger returns Options.Logger with the attributes "queue", if the pool has a name, and, until the call
// ends, "key". Without a call it is [slog.Default].
func (c Call) Logger() *slog.Logger {
	if c.anyCall == nil {
		return slog.Default()
	}
	return c.logger()
}

// Causes returns why the key came, for display and traces: a handler must do without them, because many adds
// have none and retries have none.
func (c Call) Causes() (causes workqueue.Causes) {
	if c.anyCall != nil {
		causes = c.causes()
	}
	return causes
}

// UntilAdded returns a context for the waits that are worth interrupting. It is made from the context that
// CallOf got, and ends also when the key of the call is added again, with the cause [ErrAdded]. If the key
// was added after the queue handed it out and before UntilAdded was called, it has ended already. Adds with a
// Quiet [workqueue.Cause] do not end it. A key that an earlier call has asked for again, by RequeueAfter, is
// added when its time comes, and that also ends it.
//
// A handler that returns ErrAdded, bare or wrapped, or [context.Canceled] after such a context has ended, has
// been interrupted. That is no failure: see [NextInterrupted]. (If an error has lost its cause, as a gRPC
// status has, return context.Cause instead.) If that happens more than five times in a row, the key is slowed
// down: see [Call.AtOnce].
//
// It may be called in a loop: called again with the same context, it returns the context of the last time,
// unless that has ended. Each other context starts a goroutine, which ends with the context that is returned.
// Without a call UntilAdded returns the context that CallOf got: nil for the zero Call.
func (c Call) UntilAdded() context.Context {
	if c.anyCall == nil {
		return c.ctx
	}
	return c.untilAdded(c.ctx)
}

// Hold makes the key wait after this call, with every answer of the handler: the key does not start again
// until release is called or limit has passed, whichever is first. The worker is free meanwhile. After nil
// the key comes only if somebody adds it; return RequeueAfter(0) if the key should come when the hold ends. A
// key whose handler fails or panics is held as well.
//
//	release := worker.CallOf(ctx).Hold("web is rolled out", 10*time.Minute)
//	rollouts.Notify("web", release)
//	return worker.RequeueAfter(0)
//
// A held key needs no goroutine and no timer of its own: for the end of a context,
// context.AfterFunc(ctx, release) does it. release may be called from any goroutine, any number of times,
// also before the handler has returned and after the pool has ended. It calls the queue's Done.
//
// There is one hold a call. If Hold is called again, the hold lasts until each release was called or the
// longest limit has passed, and shows the first reason: short text for display, cut to 200 bytes.
// The package comment says what ends a hold early. Without a call, and after its end, Hold does nothing, and
// release neither. Hold panics if limit is not positive.
func (c Call) Hold(reason string, limit time.Duration) (release func()) {
	checkLimit(limit)
	if c.anyCall == nil {
		return func() {}
	}
	return c.arrangeHold(reason, limit)
}

// What follows are the methods of anyCall.

func (c *Tracked[T]) isRunning() bool {
	c.tracker.mu.Lock()
	defer c.tracker.mu.Unlock()
	return c.running
}

func (c *Tracked[T]) view() (v callView) {
	if c.isRunning() {
		f := c.handOut.Failures
		v = callView{f.Count + 1, c.handOut.Priority, c.atOnce, c.tracker.priorities != nil, f.Since}
	}
	return v
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

// withTimeout is context.WithTimeout on the configured clock. If that is not the real one, only the cause is
// DeadlineExceeded.
func withTimeout(parent context.Context, c clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := c.(clock.RealClock); ok {
		return context.WithTimeout(parent, d)
	}
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		if sleep(ctx, c, d) {
			cancel(context.DeadlineExceeded)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// sleep waits for d, and reports whether ctx has not ended before.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// addWatch is the last context of UntilAdded. The tracker's mu guards it.
type addWatch struct {
	parent, child context.Context
	wasAdded      bool // a child has ended because the key was added again
}

func (c *Tracked[T]) untilAdded(parent context.Context) context.Context {
	t := c.tracker
	if !c.isRunning() {
		return parent
	}
	added := t.queue.AddedAgain(c.result.Key)
	if added == nil {
		return parent
	}
	t.mu.Lock()
	last := c.adds
	t.mu.Unlock()
	if last.parent == parent && last.child.Err() == nil && !isClosed(added) {
		return last.child
	}
	child, cancel := context.WithCancelCause(parent)
	interrupt := func() {
		t.mu.Lock()
		c.adds.wasAdded = true // Before the cancel, which may make the handler return at once.
		t.mu.Unlock()
		cancel(ErrAdded)
	}
	if isClosed(added) { // At once, not only when a goroutine runs.
		interrupt()
		return child
	}
	t.mu.Lock()
	c.adds.parent, c.adds.child = parent, child
	t.mu.Unlock()
	// The handler may have passed a context that outlives the call.
	stop := context.AfterFunc(c.callCtx, func() { cancel(context.Cause(c.callCtx)) })
	go func() {
		defer stop()
		select {
		case <-added:
			interrupt()
		case <-child.Done():
		}
	}()
	return child
}

// wasAdded reports whether a context.Canceled that the handler returns means an add: one has ended a context
// of UntilAdded, and nothing has canceled the handler's own context.
func (c *Tracked[T]) wasAdded() bool {
	c.tracker.mu.Lock()
	defer c.tracker.mu.Unlock()
	return c.adds.wasAdded && !errors.Is(c.ctx.Err(), context.Canceled)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
