package worker

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
)

// untilAdded makes the contexts of UntilAdded in one call. One goroutine waits for the add, however many
// contexts there are.
type untilAdded struct {
	// interrupted is set when one of the contexts ends because the key was added again.
	interrupted atomic.Bool

	mu sync.Mutex
	// added ends with the call and, with the cause ErrAdded, when the key is added again. The first
	// UntilAdded makes it.
	added    context.Context
	endAdded context.CancelCauseFunc
	// last is the context that was returned last. It was made from parent.
	parent, last context.Context
}

// contextFrom returns a context made from ctx that also ends when again is closed, and when call, the context
// of the whole call, ends.
func (u *untilAdded) contextFrom(ctx, call context.Context, again <-chan struct{}) context.Context {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.added == nil {
		u.added, u.endAdded = context.WithCancelCause(call)
		go func() {
			select {
			case <-again:
				u.endAdded(ErrAdded)
			case <-u.added.Done():
			}
		}()
	}
	if isClosed(again) {
		u.endAdded(ErrAdded) // At once, not only when the goroutine above runs.
	}
	ended := u.added.Err() != nil
	if !ended && u.last != nil && reflect.ValueOf(ctx).Comparable() && u.parent == ctx {
		return u.last
	}
	until, cancel := context.WithCancelCause(ctx)
	end := func() {
		cause := context.Cause(u.added)
		if cause == ErrAdded {
			u.interrupted.Store(true) // Before cancel, which may make the handler return at once.
		}
		cancel(cause)
	}
	if ended {
		end()
		return until
	}
	// added ends the context until, also at the end of the call, which ctx may outlive. If ctx ends it first,
	// added must forget it.
	stop := context.AfterFunc(u.added, end)
	context.AfterFunc(until, func() { stop() })
	u.parent, u.last = ctx, until
	return until
}
