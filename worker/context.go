package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// The contexts of a call, each made from the one above:
//
//	Run's context         gives only its values; when it ends, Run begins to end
//	the pool's context    ends when Run stops waiting for handlers
//	callContext           ends with the call, and by Cancel
//	HandlerTimeout        if there is one
//	the key's lease       if the queue is a workqueue.Leaser
//	-- the handler gets the context made so far --
//	UntilAdded            also ends when the key is added again

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
	entry *Tracked[T]
	// own is nil until it is needed. If the call ends before that, it is the entry's endedCtx.
	own atomic.Pointer[ownContext]
}

// ownContext is a standard context of one call.
type ownContext struct {
	context.Context
	cancel context.CancelCauseFunc
	until  untilAdded
}

func newOwnContext(parent context.Context) *ownContext {
	ctx, cancel := context.WithCancelCause(parent)
	return &ownContext{Context: ctx, cancel: cancel}
}

// ensureOwn returns own, which it makes if there is none.
func (c *callContext[T]) ensureOwn() *ownContext {
	if own := c.own.Load(); own != nil {
		return own
	}
	own := newOwnContext(c.entry.base)
	if !c.own.CompareAndSwap(nil, own) {
		own.cancel(nil) // Somebody else was quicker, or the call has ended.
	}
	return c.own.Load()
}

// end ends the context. A call that has made no own context gets endedCtx, so that Done and Err of a context
// that was kept report the end.
func (c *callContext[T]) end() {
	if !c.own.CompareAndSwap(nil, c.entry.endedCtx) {
		c.own.Load().cancel(nil)
	}
}

func (c *callContext[T]) Deadline() (time.Time, bool) { return c.entry.base.Deadline() }
func (c *callContext[T]) Done() <-chan struct{}       { return c.ensureOwn().Done() }

func (c *callContext[T]) Err() error {
	if c.own.Load() == nil && c.entry.base.Err() == nil {
		return nil
	}
	return c.ensureOwn().Err()
}

// Value lets CallOf find the callContext, and lets the context package find the standard context in own. (If
// it did not find that one, each context made from the callContext would cost a goroutine.)
func (c *callContext[T]) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return c
	}
	if own := c.own.Load(); own != nil {
		return own.Value(key)
	}
	return c.entry.base.Value(key)
}

// ifRunning runs f under the tracker's mu if the call is still running, and reports whether it is.
func (c *callContext[T]) ifRunning(f func(e *Tracked[T])) (running bool) {
	b := c.entry.tracker
	b.mu.Lock()
	defer b.mu.Unlock()
	if running = c.entry.current.callCtx == c; running {
		f(c.entry)
	}
	return running
}

// wasInterrupted reports whether an add has ended a context of UntilAdded, and nothing else has canceled the
// handler. Then a context.Canceled that the handler returns is an interruption.
func (c *callContext[T]) wasInterrupted() bool {
	own := c.own.Load()
	if own == nil || !own.until.interrupted.Load() {
		return false
	}
	var handlerCtx context.Context
	running := c.ifRunning(func(e *Tracked[T]) { handlerCtx = e.ctx })
	return !running || !errors.Is(handlerCtx.Err(), context.Canceled)
}

// Cancel ends the context of the handler that has key, with the cause [ErrCanceled], and reports whether
// there is one. The handler's answer then decides as always: an error is a failure. Cancel does not wait.
func (t *Tracker[T]) Cancel(key T) bool {
	t.mu.Lock()
	e := t.findLocked(key)
	if e == nil {
		t.mu.Unlock()
		return false
	}
	e.current.Canceled = true
	callCtx := e.current.callCtx
	t.mu.Unlock()
	callCtx.ensureOwn().cancel(ErrCanceled) // Not under mu: this runs what waits for the context.
	return true
}

// makeContext makes the handler's context.
func (e *Tracked[T]) makeContext() {
	if len(e.contexts) == 0 { // One allocation serves many calls.
		e.contexts = make([]callContext[T], 256)
	}
	e.callCtx, e.contexts = &e.contexts[0], e.contexts[1:]
	e.callCtx.entry = e
	e.ctx = e.callCtx
	b := e.tracker
	if b.options.HandlerTimeout > 0 {
		e.ctx, e.cancel = withTimeout(e.callCtx, b.options.Clock, b.options.HandlerTimeout)
	}
	if b.leaser != nil {
		e.lease()
	}
}

// lease makes the handler's context end with the key's lease.
func (e *Tracked[T]) lease() {
	parent, endTimeout := e.ctx, e.cancel
	leased, release := e.tracker.leaser.Lease(parent, e.result.Key)
	e.lost = leased.Err() != nil && parent.Err() == nil // It has ended by itself, and not with its parent.
	e.ctx, e.cancel = leased, func() {
		release()
		if endTimeout != nil {
			endTimeout()
		}
	}
	if e.lost {
		e.tracker.logger.Warn("The lease of a key ended before its handler was called", "key", e.result.Key)
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
