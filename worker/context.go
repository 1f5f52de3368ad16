package worker

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
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

// The contexts of a call, each made from the one above:
//
//	base              the pool's poolCtx (see prepareContexts), or what Tracker.Begin gets
//	callContext       ends with the call, and by Cancel
//	HandlerTimeout    if there is one
//	the key's lease   if the queue is a lease.Leaser
//	-- the handler gets the context made so far --
//	UntilAdded        also ends when the key is added again

// callContext is the context of one call. It is not reused, because the handler may keep it. A standard
// context costs allocations and a place in its parent, and few handlers wait for its end. So a callContext
// makes one when somebody first needs it. Its std is
//
//	nil        until it is needed, while the call runs
//	endedCtx   if the call has ended before that
//	its own    otherwise, also when it has ended
type callContext[T comparable] struct {
	tracked *Tracked[T]
	std     atomic.Pointer[stdContext]
}

// stdContext is the standard context of one call, and what UntilAdded has made from it.
type stdContext struct {
	context.Context
	cancel context.CancelCauseFunc
	adds   addWatch
}

// endedCtx is the std of all calls that have ended before they needed one.
var endedCtx = func() *stdContext {
	std := newStdContext(context.Background())
	std.cancel(nil)
	return std
}()

func newStdContext(parent context.Context) *stdContext {
	ctx, cancel := context.WithCancelCause(parent)
	return &stdContext{Context: ctx, cancel: cancel}
}

// ensureStd returns std, which it makes if there is none.
func (cc *callContext[T]) ensureStd() *stdContext {
	if std := cc.std.Load(); std != nil {
		return std
	}
	std := newStdContext(cc.tracked.base)
	if !cc.std.CompareAndSwap(nil, std) {
		std.cancel(nil) // Somebody else was quicker, or the call has ended.
	}
	return cc.std.Load()
}

// end ends the context, also for a handler that has kept it.
func (cc *callContext[T]) end() {
	if !cc.std.CompareAndSwap(nil, endedCtx) {
		cc.std.Load().cancel(nil)
	}
}

func (cc *callContext[T]) Deadline() (time.Time, bool) { return cc.tracked.base.Deadline() }
func (cc *callContext[T]) Done() <-chan struct{}       { return cc.ensureStd().Done() }

func (cc *callContext[T]) Err() error {
	if cc.std.Load() == nil && cc.tracked.base.Err() == nil {
		return nil
	}
	return cc.ensureStd().Err()
}

// Value lets CallOf find the callContext, and lets the context package find the standard context in std. (If
// it did not find that one, each context made from the callContext would cost a goroutine.)
func (cc *callContext[T]) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return cc
	}
	if std := cc.std.Load(); std != nil && std != endedCtx { // endedCtx has no values.
		return std.Value(key)
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

// wasInterrupted reports whether a context.Canceled that the handler has returned means an add: one has ended
// a context of UntilAdded and, while the call runs, nothing has canceled the handler's own context.
func (cc *callContext[T]) wasInterrupted() bool {
	std := cc.std.Load()
	if std == nil || !std.adds.interrupted.Load() {
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
	parent, cancelTimeout := c.ctx, c.cancel
	leased, release := c.tracker.leaser.Lease(parent, c.result.Key)
	c.leaseParent = parent
	c.leaseLost = leased.Err() != nil && parent.Err() == nil // The lease itself has ended, not its parent.
	c.ctx, c.cancel = leased, func() {
		release()
		if cancelTimeout != nil {
			cancelTimeout()
		}
	}
	if c.leaseLost {
		c.tracker.log(c.base, slog.LevelWarn, "The lease of a key ended before its handler was called",
			"key", c.result.Key)
	}
}

// addWatch makes the contexts of UntilAdded in one call. The handler may pass contexts of its own to CallOf,
// so there may be several. One goroutine waits for the add, and ends watchCtx, which each of them follows:
//
//	std ── watchCtx   ends with the call and, with the cause ErrAdded, when the key is added again
//	parent ── child   UntilAdded returns it, made from what CallOf got; it also ends when watchCtx does
type addWatch struct {
	// interrupted is set when one of the children ends because the key was added again.
	interrupted atomic.Bool

	mu                    sync.Mutex
	watchCtx              context.Context // nil before the first UntilAdded
	endWatch              context.CancelCauseFunc
	lastParent, lastChild context.Context // of the last UntilAdded
}

// contextFrom returns a child of parent. addedAgain is closed when the key is added again.
func (w *addWatch) contextFrom(parent, std context.Context, addedAgain <-chan struct{}) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watchCtx == nil {
		w.watchCtx, w.endWatch = context.WithCancelCause(std)
		go func() {
			select {
			case <-addedAgain:
				w.endWatch(ErrAdded)
			case <-w.watchCtx.Done():
			}
		}()
	}
	if isClosed(addedAgain) {
		w.endWatch(ErrAdded) // At once, not only when the goroutine above runs.
	}
	hasEnded := w.watchCtx.Err() != nil
	// == panics for contexts that cannot be compared.
	if !hasEnded && w.lastChild != nil && reflect.ValueOf(parent).Comparable() && w.lastParent == parent {
		return w.lastChild
	}
	child, cancelChild := context.WithCancelCause(parent)
	endChild := func() {
		cause := context.Cause(w.watchCtx)
		if cause == ErrAdded {
			w.interrupted.Store(true) // Before the cancel, which may make the handler return at once.
		}
		cancelChild(cause)
	}
	if hasEnded {
		endChild()
		return child
	}
	stop := context.AfterFunc(w.watchCtx, endChild) // It also ends with the call, which parent may outlive.
	context.AfterFunc(child, func() { stop() })     // If parent ends first, watchCtx must not keep child.
	w.lastParent, w.lastChild = parent, child
	return child
}
