package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// callContext is the context of one call of a handler. Nothing in it changes, so a handler may keep it
// longer than its call. Calls that differ in nothing share one.
type callContext struct {
	context.Context
	attempt  int
	priority int
	// prioritized reports that the queue has priorities.
	prioritized bool
	logger      *slog.Logger // with the queue's name; nil means silence
	key         any          // nil if logger is
}

// callContextKey is what a callContext returns itself for.
type callContextKey struct{}

// Value makes accessors find the callContext in contexts that are made from it.
func (c *callContext) Value(key any) any {
	if _, ok := key.(callContextKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// Attempt returns how many times in a row the key has been handled, this call included: 1 if it has not
// failed before. In a context that is not from a handler's call it returns 0.
func Attempt(ctx context.Context) int {
	if c, ok := ctx.Value(callContextKey{}).(*callContext); ok {
		return c.attempt
	}
	return 0
}

// Priority returns the priority of the key of a handler's call. It returns false if the queue has no priorities
// (see [PriorityQueue]), or ctx is not from a handler's call.
func Priority(ctx context.Context) (priority int, ok bool) {
	if c, ok := ctx.Value(callContextKey{}).(*callContext); ok {
		return c.priority, c.prioritized
	}
	return 0, false
}

var silent = slog.New(slog.DiscardHandler)

// Logger returns Options.Logger with the attributes "queue", if the pool has a name, and "key". If
// there is none, or ctx is not from a handler's call, it returns one that is silent.
func Logger(ctx context.Context) *slog.Logger {
	if c, ok := ctx.Value(callContextKey{}).(*callContext); ok && c.logger != nil {
		return c.logger.With("key", c.key)
	}
	return silent
}

// withTimeout is context.WithTimeout with the configured timeout and clock.
func (p *Pool[T]) withTimeout(parent context.Context) (context.Context, context.CancelFunc) {
	c, d := p.options.Clock, p.options.HandlerTimeout
	if _, ok := c.(clock.RealClock); ok {
		return context.WithTimeout(parent, d)
	}
	ctx := &clockContext{Context: parent, deadline: c.Now().Add(d), done: make(chan struct{})}
	timer := c.NewTimer(d)
	go p.guarded(func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			ctx.end(context.DeadlineExceeded)
		case <-parent.Done():
			ctx.end(parent.Err())
		case <-ctx.done:
		}
	})
	return ctx, func() { ctx.end(context.Canceled) }
}

// clockContext is a context with a deadline on a clock that the context package does not know.
type clockContext struct {
	context.Context
	deadline time.Time
	done     chan struct{}

	mu  sync.Mutex // guards err and the closing of done
	err error
}

func (c *clockContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// Deadline is on the configured clock.
func (c *clockContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *clockContext) Done() <-chan struct{} { return c.done }

func (c *clockContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
