package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// The contexts of a call, each made from the one above:
//
//	base              the pool's poolCtx (see prepareContexts), or what Tracker.Begin gets
//	callContext       ends with the call, and by Cancel
//	HandlerTimeout    if there is one
//	the key's lease   if the queue is a workqueue.Leaser
//	-- the handler gets the context made so far --
//	UntilAdded        also ends when the key is added again

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
	// ErrAdded is the cause of the end of a context of [Call.UntilAdded]. To return it is no failure: see
	// [NextInterrupted].
	ErrAdded = errors.New("worker: the key was added again")
)

// callContext is the context of one call. It is not reused, because the handler may keep it. A standard
// context costs allocations and a place in its parent, and few handlers wait for its end. So a callContext
// makes one, own, when somebody first needs it.
type callContext[T comparable] struct {
	tracked *Tracked[T]
	// own is nil until it is needed. If the call ends before that, it is endedCtx.
	own atomic.Pointer[ownContext]
}

// ownContext is the standard context of one call, and what UntilAdded has made from it.
type ownContext struct {
	context.Context
	cancel     context.CancelCauseFunc
	untilAdded untilAdded
}

// endedCtx is the own context of all calls that have ended before they needed one.
var endedCtx = func() *ownContext {
	own := newOwnContext(context.Background())
	own.cancel(nil)
	return own
}()

func newOwnContext(parent context.Context) *ownContext {
	ctx, cancel := context.WithCancelCause(parent)
	return &ownContext{Context: ctx, cancel: cancel}
}

// ensureOwn returns own, which it makes if there is none.
func (cc *callContext[T]) ensureOwn() *ownContext {
	if own := cc.own.Load(); own != nil {
		return own
	}
	own := newOwnContext(cc.tracked.base)
	if !cc.own.CompareAndSwap(nil, own) {
		own.cancel(nil) // Somebody else was quicker, or the call has ended.
	}
	return cc.own.Load()
}

// end ends the context, also for a handler that has kept it.
func (cc *callContext[T]) end() {
	if !cc.own.CompareAndSwap(nil, endedCtx) {
		cc.own.Load().cancel(nil)
	}
}

func (cc *callContext[T]) Deadline() (time.Time, bool) { return cc.tracked.base.Deadline() }
func (cc *callContext[T]) Done() <-chan struct{}       { return cc.ensureOwn().Done() }

func (cc *callContext[T]) Err() error {
	if cc.own.Load() == nil && cc.tracked.base.Err() == nil {
		return nil
	}
	return cc.ensureOwn().Err()
}

// Value lets CallOf find the callContext, and lets the context package find the standard context in own. (If
// it did not find that one, each context made from the callContext would cost a goroutine.)
func (cc *callContext[T]) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return cc
	}
	if own := cc.own.Load(); own != nil && own != endedCtx { // endedCtx has no values.
		return own.Value(key)
	}
	return cc.tracked.base.Value(key)
}

// ifRunning runs f under the tracker's mu if the call is still running, and reports whether it is.
func (cc *callContext[T]) ifRunning(f func(c *Tracked[T])) (running bool) {
	t := cc.tracked.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if running = cc.tracked.running && cc.tracked.callCtx == cc; running {
		f(cc.tracked)
	}
	return running
}

// wasInterrupted reports whether an add has ended a context of UntilAdded, and nothing else has canceled the
// handler. Then a context.Canceled that the handler returns is an interruption.
func (cc *callContext[T]) wasInterrupted() bool {
	own := cc.own.Load()
	if own == nil || !own.untilAdded.interrupted.Load() {
		return false
	}
	var handlerCtx context.Context
	running := cc.ifRunning(func(c *Tracked[T]) { handlerCtx = c.ctx })
	return !running || !errors.Is(handlerCtx.Err(), context.Canceled)
}

// makeContext makes the handler's context.
func (c *Tracked[T]) makeContext() {
	if len(c.contexts) == 0 { // One allocation serves many calls.
		c.contexts = make([]callContext[T], 256)
	}
	c.callCtx, c.contexts = &c.contexts[0], c.contexts[1:]
	c.callCtx.tracked = c
	c.ctx = c.callCtx
	t := c.tracker
	if t.options.HandlerTimeout > 0 {
		c.ctx, c.cancel = withTimeout(c.callCtx, t.options.Clock, t.options.HandlerTimeout)
	}
	if t.leaser != nil {
		c.lease()
	}
}

// lease makes the handler's context end with the key's lease.
func (c *Tracked[T]) lease() {
	parent, endTimeout := c.ctx, c.cancel
	leased, release := c.tracker.leaser.Lease(parent, c.result.Key)
	c.leaseLost = leased.Err() != nil && parent.Err() == nil // It has ended by itself, and not with its parent.
	c.ctx, c.cancel = leased, func() {
		release()
		if endTimeout != nil {
			endTimeout()
		}
	}
	if c.leaseLost {
		c.tracker.log(c.base, slog.LevelWarn, "The lease of a key ended before its handler was called", "key", c.result.Key)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
