// Package drain lets any number of callers wait until a queue is empty.
package drain

import "context"

// Drain is one wait for a queue to become empty, shared by all who wait. It is made by [New].
type Drain struct {
	ended chan struct{}
	// err is set before ended is closed.
	err error
}

// New returns a Drain that has not ended.
func New() *Drain { return &Drain{ended: make(chan struct{})} }

// End makes all who wait return err. It must not be called twice.
func (d *Drain) End(err error) {
	d.err = err
	close(d.ended)
}

// Wait waits until d has ended, and returns the error that it ended with, or ctx.Err() if ctx is done first.
// A d that is nil has ended without an error.
func (d *Drain) Wait(ctx context.Context) error {
	if d == nil {
		return nil
	}
	select {
	case <-d.ended:
		return d.err
	case <-ctx.Done():
	}
	select {
	case <-d.ended: // both, and this is the better news
		return d.err
	default:
		return ctx.Err()
	}
}
