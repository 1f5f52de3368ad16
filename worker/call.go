package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyedqueue/workqueue"
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

// callKey is the key whose Value in a callContext is the callContext itself.
type callKey struct{}

// anyCall is what a Call needs of its *callContext. It hides the type of the key.
type anyCall interface {
	view() callView
	logger() *slog.Logger
	causes() workqueue.Causes
	lastAttempt() bool
	untilAdded(ctx context.Context) context.Context
	wasInterrupted() bool
	addReason(r *holdReason)
}

// callView is what a handler may read of its running call. It is zero if the call has ended, or is none.
type callView struct {
	attempt, priority    int
	running, hasPriority bool
}

func (c Call) view() (v callView) {
	if c.anyCall != nil {
		v = c.anyCall.view()
	}
	return v
}

// Attempt returns the number of this attempt: 1, and one more for each failure in a row before this call.
func (c Call) Attempt() int { return c.view().attempt }

// LastAttempt reports whether the key is given up if this call fails now: it has failed Options.MaxRetries
// times, the delay after the last failure has passed, and the pool has not ended the contexts of its calls.
// Over a queue that processes share, the failures of all count.
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

// Causes returns why the key came, for people and traces: a handler must do without them, because many adds
// have none and retries have none. Over a queue that is not of this project they are those of adds by a Pool.
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
// added when its time comes, and that ends it, too.
//
// A handler that returns ErrAdded, bare or wrapped, or [context.Canceled] after such a context has ended, has
// been interrupted. That is no failure: see [NextInterrupted]. (If an error has lost its cause, as a gRPC
// status has, return context.Cause instead.)
//
// It may be called in a loop: called again with the same context, it returns the context of the last time,
// unless that has ended. Only the last context is kept. Its first use starts a goroutine, which ends with the
// call or when the key is added again. Over a queue that is not of this project it ends only by adds of the
// pool itself. Without a call UntilAdded returns the context that CallOf got: nil for the zero Call.
func (c Call) UntilAdded() context.Context {
	if c.anyCall == nil {
		return c.ctx
	}
	return c.untilAdded(c.ctx)
}

// Hold makes the key wait after this call, whatever the handler returns: the key does not start again until
// release is called or limit has passed, as with the function [Hold]. After nil it comes again only if
// somebody adds it. So it suits a cache that does not show yet what the handler has written: the next call
// must not come before, and need not come at all.
//
// It may be called more than once in a call: the key is held until each hold was released or has come to its
// limit. If the handler also returns [Hold], that is one more. A key whose handler fails or panics is held
// all the same. Without a call, and after its end, arrange is not called. It panics as Hold does.
func (c Call) Hold(reason string, limit time.Duration, arrange func(release func())) {
	if c.view().running {
		c.addReason(Hold(reason, limit, arrange).(*holdReason))
	}
}

// What follows are the methods of anyCall. Of tracked they use tracker and base, which do not change, at any
// time, and the rest only while this call is running: afterwards it serves other calls.

func (cc *callContext[T]) view() (v callView) {
	cc.ifRunning(func(c *Tracked[T]) { v = callView{c.attempt, c.priority, true, c.tracker.priorities != nil} })
	return v
}

func (cc *callContext[T]) lastAttempt() bool {
	t := cc.tracked.tracker
	key, running := cc.key()
	if !running || t.options.MaxRetries == UnlimitedRetries || cc.tracked.base.Err() != nil {
		return false
	}
	f := t.queue.Failures(key)
	return f.Left == 0 && f.Count >= max(0, t.options.MaxRetries)
}

func (cc *callContext[T]) addReason(r *holdReason) {
	cc.ifRunning(func(c *Tracked[T]) { c.reasons = append(c.reasons, r) })
}

// key returns the key of the call, or false if it has ended.
func (cc *callContext[T]) key() (key T, running bool) {
	running = cc.ifRunning(func(c *Tracked[T]) { key = c.result.Key })
	return key, running
}

func (cc *callContext[T]) logger() *slog.Logger {
	logger := cc.tracked.tracker.logger
	if key, running := cc.key(); running {
		return logger.With("key", key)
	}
	return logger
}

func (cc *callContext[T]) causes() (causes workqueue.Causes) {
	if key, running := cc.key(); running {
		causes = cc.tracked.tracker.queue.Causes(key)
	}
	return causes
}

func (cc *callContext[T]) untilAdded(ctx context.Context) context.Context {
	key, running := cc.key()
	if !running {
		return ctx
	}
	again := cc.tracked.tracker.queue.AddedAgain(key)
	if again == nil {
		return ctx
	}
	std := cc.ensureStd()
	return std.adds.contextFrom(ctx, std, again)
}
