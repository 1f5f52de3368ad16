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
