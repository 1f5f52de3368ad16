package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// A handler's context ends with its call, and with Run if the handler has not returned by then. Then its [context.Cause] is
// ErrDrainTimeout, ErrStopped or, if Run's context has ended and Options.Drain is [Nothing], that of Run's context.
var (
	// ErrDrainTimeout is the cause when Options.DrainTimeout is over.
	ErrDrainTimeout = errors.New("worker: the time to finish after the end of Run's context is over")
	// ErrStopped is the cause after [Pool.Stop] of [Nothing].
	ErrStopped = errors.New("worker: the pool was stopped, and does not wait for its handlers")
	// ErrCanceled is the cause after [Pool.Cancel].
	ErrCanceled = errors.New("worker: Cancel was called for the key")
	// ErrAdded is the cause of the end of a context of [UntilAdded]. To return it is no failure: see [NextInterrupted].
	ErrAdded = errors.New("worker: the key was added again")
)

// callContext is the context of one call of a handler. It ends when the call has ended, and before that with the pool and by
// Pool.Cancel. A handler may keep it for longer, so each is used once. A standard context costs allocations
// and a place in its parent, and few handlers wait for its end. So it makes one (own) when somebody first asks.
type callContext struct {
	*callInfo
	// own is nil until it is needed. If the call ends before that, it is callInfo.ended.
	own atomic.Pointer[ownContext]
}

// callInfo is the part of a callContext that does not change. First attempts without logger and priorities share one.
type callInfo struct {
	pool     caller
	handling context.Context // the parent of all
	ended    *ownContext     // one that has ended, for calls that end before they need one of their own

	attempt  int
	priority int
	// prioritized reports that the queue has priorities.
	prioritized bool
	logger      *slog.Logger // with the queue's name; nil means silence
	key         any          // nil if logger is
}

func (p *Pool[T]) newCallInfo(handling context.Context) *callInfo {
	return &callInfo{pool: p, handling: handling, attempt: 1, prioritized: p.priorities != nil, logger: p.logger}
}

// caller is a pool whose keys are of any type.
type caller interface {
	causes(c *callContext) workqueue.Causes
	addedAgain(c *callContext) <-chan struct{}
}

// ownContext is a standard context of one call.
type ownContext struct {
	context.Context
	end context.CancelCauseFunc
	// interrupted reports that UntilAdded has ended a context because the key was added again.
	interrupted atomic.Bool
}

func newOwnContext(parent context.Context) *ownContext {
	ctx, end := context.WithCancelCause(parent)
	return &ownContext{Context: ctx, end: end}
}

// need returns the standard context.
func (c *callContext) need() *ownContext {
	if own := c.own.Load(); own != nil {
		return own
	}
	own := newOwnContext(c.handling)
	if !c.own.CompareAndSwap(nil, own) {
		own.end(nil) // Somebody else was quicker, or the call has ended.
	}
	return c.own.Load()
}

// callEnds ends the context.
func (c *callContext) callEnds() {
	if !c.own.CompareAndSwap(nil, c.ended) {
		c.own.Load().end(nil)
	}
}

func (c *callContext) Deadline() (time.Time, bool) { return c.handling.Deadline() }
func (c *callContext) Done() <-chan struct{}       { return c.need().Done() }

func (c *callContext) Err() error {
	if c.own.Load() == nil && c.handling.Err() == nil {
		return nil
	}
	return c.need().Err()
}

// Value makes accessors find the callContext in contexts that are made from it. The context package finds the standard
// one, so that contexts made from it need no goroutine.
func (c *callContext) Value(key any) any {
	if _, ok := key.(callContextKey); ok {
		return c
	}
	if own := c.own.Load(); own != nil {
		return own.Value(key)
	}
	return c.handling.Value(key)
}

// callContextKey is what a callContext returns itself for.
type callContextKey struct{}

// noCall stands for the call that a context is from, if it is from none.
var noCall = &callContext{callInfo: new(callInfo)}

// callOf returns the context of the handler's call that ctx is made from, or noCall.
func callOf(ctx context.Context) *callContext {
	if c, ok := ctx.Value(callContextKey{}).(*callContext); ok {
		return c
	}
	return noCall
}

// Attempt returns how many times in a row the key has been handled, this call included: 1 if it has not
// failed before. In a context that is not from a handler's call it returns 0.
func Attempt(ctx context.Context) int { return callOf(ctx).attempt }

// Priority returns the priority of the key of a handler's call, or false for other contexts and without a [PriorityQueue].
func Priority(ctx context.Context) (priority int, ok bool) {
	c := callOf(ctx)
	return c.priority, c.prioritized
}

var silent = slog.New(slog.DiscardHandler)

// Logger returns Options.Logger with the attributes "queue", if the pool has a name, and "key". If
// there is none, or ctx is not from a handler's call, it returns one that is silent.
func Logger(ctx context.Context) *slog.Logger {
	if c := callOf(ctx); c.logger != nil {
		return c.logger.With("key", c.key)
	}
	return silent
}

// Causes returns why the key of a handler's call came, for people and traces: a handler must do without them, because many adds
// have none and retries have none. They are zero if the queue is no [workqueue.CauseAdder], the call
// has ended, or ctx is not from one.
func Causes(ctx context.Context) workqueue.Causes {
	if c := callOf(ctx); c != noCall {
		return c.pool.causes(c)
	}
	return workqueue.Causes{}
}

func (p *Pool[T]) causes(c *callContext) (causes workqueue.Causes) {
	if call, ok := p.find(func(call current[T]) bool { return call.base == c }); ok {
		causes = p.causesOf(call.Key)
	}
	return causes
}

// causesOf returns the causes of a key that a worker holds.
func (p *Pool[T]) causesOf(key T) (causes workqueue.Causes) {
	if q, ok := p.queue.(workqueue.CauseAdder[T]); ok {
		causes = q.Causes(key)
	}
	return causes
}

// UntilAdded returns a context for the waits that are worth interrupting: it is made from ctx, which is that of a handler's
// call or made from it, and ends also when the key of the call is added again, with the cause [ErrAdded]. If the key was added
// after the queue handed it out and before UntilAdded was called, it has ended already. Adds with a Quiet
// [workqueue.Cause] do not end it, and neither does the handler's own RequeueAfter, which comes later.
//
// A handler that returns ErrAdded, bare or wrapped, or [context.Canceled] after such a context has ended, has been interrupted.
// That is no failure: see [NextInterrupted]. (If an error has lost its cause, as a gRPC status has, return context.Cause instead.)
//
// The context ends with the call. Until then it takes a goroutine, and UntilAdded time in proportion to the number of workers. If
// the queue is no [workqueue.AddNotifier], the call has ended, or ctx is not from one, UntilAdded returns ctx itself.
func UntilAdded(ctx context.Context) context.Context {
	c := callOf(ctx)
	if c == noCall {
		return ctx
	}
	added := c.pool.addedAgain(c)
	if added == nil {
		return ctx
	}
	own := c.need()
	until, end := context.WithCancelCause(ctx)
	interrupt := func() {
		own.interrupted.Store(true) // First: when the handler returns, it must be set.
		end(ErrAdded)
	}
	if isClosed(added) {
		interrupt()
		return until
	}
	go func() {
		select {
		case <-added:
			interrupt()
		case <-own.Done(): // ctx need not end with the call.
			end(context.Cause(own))
		case <-until.Done():
		}
	}()
	return until
}

// addedAgain returns the queue's channel for the key of c, or nil.
func (p *Pool[T]) addedAgain(c *callContext) <-chan struct{} {
	call, ok := p.find(func(call current[T]) bool { return call.base == c })
	if q, notifies := p.queue.(workqueue.AddNotifier[T]); ok && notifies {
		return q.AddedAgain(call.Key)
	}
	return nil
}

// interrupted reports whether a context of UntilAdded has ended because the key was added again.
func (c *call[T]) interrupted() bool {
	own := c.base.own.Load()
	return own != nil && own.interrupted.Load()
}

// Cancel ends the context of the handler that has key, with the cause [ErrCanceled], and reports whether there is one. The
// handler's answer then decides as always: an error is a failure. Cancel does not wait, and also reaches handlers that Run has
// left behind.
func (p *Pool[T]) Cancel(key T) bool {
	c, ok := p.find(func(c current[T]) bool { return c.Key == key })
	if ok {
		c.base.need().end(ErrCanceled)
	}
	return ok
}

// prepare finds out what is known of the key, and makes the handler's context, with what contexts have in common.
func (p *Pool[T]) prepare(w *worker[T], c *call[T], common *callInfo) {
	c.failed = p.failuresOf(context.Background(), c.Key)
	c.Attempt = c.failed.calls + 1
	if p.priorities != nil {
		c.priority = p.priorities.PriorityOf(c.Key)
	}
	c.Started = p.options.Clock.Now()
	if len(w.contexts) == 0 { // Many are allocated at once, so that hardly a key costs an allocation.
		w.contexts = make([]callContext, 256)
	}
	c.base, w.contexts = &w.contexts[0], w.contexts[1:]
	c.base.callInfo = common
	if c.Attempt > 1 || p.logger != nil || p.priorities != nil {
		info := *common
		info.attempt, info.priority = c.Attempt, c.priority
		if p.logger != nil {
			info.key = c.Key
		}
		c.base.callInfo = &info
	}
	c.ctx = c.base
	if p.options.HandlerTimeout > 0 {
		c.ctx, c.cancel = p.withTimeout(c.base)
	}
	if p.leaser != nil {
		p.lease(c)
	}
}

// lease makes the handler's context end with the key's lease.
func (p *Pool[T]) lease(c *call[T]) {
	parent, endTimeout := c.ctx, c.cancel
	leased, release := p.leaser.Lease(parent, c.Key)
	c.lost = leased.Err() != nil && parent.Err() == nil
	c.ctx, c.cancel = leased, func() {
		release()
		if endTimeout != nil {
			endTimeout()
		}
	}
	if c.lost && p.logger != nil {
		p.logger.Warn("The lease of a key ended before its handler was called", "key", c.Key)
	}
}

// end ends the handler's context.
func (c *call[T]) end() {
	if c.cancel != nil {
		c.cancel()
	}
	if c.base != nil {
		c.base.callEnds()
	}
}

// withTimeout is context.WithTimeout with the configured timeout and clock.
func (p *Pool[T]) withTimeout(parent context.Context) (context.Context, context.CancelFunc) {
	c, d := p.options.Clock, p.options.HandlerTimeout
	if _, ok := c.(clock.RealClock); ok {
		return context.WithTimeout(parent, d)
	}
	ended, end := context.WithCancelCause(context.Background())
	ctx := &clockContext{parent, c.Now().Add(d), ended}
	timer := c.NewTimer(d)
	go p.guarded(func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			end(context.DeadlineExceeded)
		case <-parent.Done():
			end(parent.Err())
		case <-ended.Done():
		}
	})
	return ctx, func() { end(context.Canceled) }
}

// clockContext is a context with a deadline on a clock that the context package does not know.
type clockContext struct {
	context.Context
	deadline time.Time
	ended    context.Context // ends with this one, for the cause that is this one's error
}

func (c *clockContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *clockContext) Done() <-chan struct{}       { return c.ended.Done() }
func (c *clockContext) Err() error                  { return context.Cause(c.ended) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
