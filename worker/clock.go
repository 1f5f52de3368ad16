package worker

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// withTimeout is context.WithTimeout on the configured clock.
func withTimeout(parent context.Context, c clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := c.(clock.RealClock); ok {
		return context.WithTimeout(parent, d)
	}
	// Not made from parent: the cause must be what Err returns, and parent may have another cause.
	ended, end := context.WithCancelCause(context.Background())
	ctx := &clockContext{parent, c.Now().Add(d), ended}
	timer := c.NewTimer(d)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			end(context.DeadlineExceeded)
		case <-parent.Done():
			end(parent.Err())
		case <-ended.Done():
		}
	}()
	return ctx, func() { end(context.Canceled) }
}

// clockContext is a context with a deadline on a clock that the context package does not know.
type clockContext struct {
	context.Context
	deadline time.Time
	ended    context.Context // provides Done and, by its cause, Err
}

func (c *clockContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *clockContext) Done() <-chan struct{}       { return c.ended.Done() }
func (c *clockContext) Err() error                  { return context.Cause(c.ended) }

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
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
