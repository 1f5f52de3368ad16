package worker

import (
	"context"
	"errors"
	"sync"
)

// Runner is something that runs until its context ends: a [Pool], whatever its keys are, or a
// [RunnerFunc].
type Runner interface {
	// Run runs until ctx ends, and then finishes what it has begun and returns. An error that it
	// returns before is fatal.
	Run(ctx context.Context) error
}

// RunnerFunc is a function as a [Runner], for the parts of a program that belong to its workers: those
// that fill the queues.
type RunnerFunc func(ctx context.Context) error

// Run calls f.
func (f RunnerFunc) Run(ctx context.Context) error { return f(ctx) }

// Group runs several Runners as one. They start together and end together: when the context ends, or
// when one of them returns an error. One that returns nil before that does not end the others: so a Pool ends its
// group by a fatal error, and not because its queue was shut down or keys were left. A Runner that panics ends the
// process, as in any goroutine.
//
// The zero Group is empty and ready for use. A Group is a Runner itself.
type Group struct {
	mu      sync.Mutex // guards what follows
	runners []Runner
	started bool
}

// Add adds a Runner. It panics if r is nil or Run was called before.
func (g *Group) Add(r Runner) {
	if r == nil {
		panic("worker: Group.Add of nil")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		panic("worker: Group.Add after Run")
	}
	g.runners = append(g.runners, r)
}

// Run runs all that was added and returns when all have returned: nil, the error if there is one, or the
// errors joined, the one that came first at the front. If one of them is a Pool that cannot begin, because
// of bad input or a Run before, Run returns all such errors at once and starts nothing. An error that is nothing but the
// context's own, after its end, is left out.
func (g *Group) Run(ctx context.Context) error {
	if ctx == nil {
		return errors.New("worker: Run without a context")
	}
	runners, err := g.begin()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error)
	for _, r := range runners {
		go func() {
			// Deferred, so that a Runner that ends its goroutine does not leave the others alone.
			err := ErrGoexit
			defer func() { results <- err }()
			err = r.Run(ctx)
		}()
	}
	var errs []error
	for range runners {
		// A Runner that only says that its context has ended has not failed.
		if err := <-results; err != nil && err != ctx.Err() {
			errs = append(errs, err)
			cancel()
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// begin returns the runners, or an error if Run cannot begin. No other can be added from now on.
func (g *Group) begin() ([]Runner, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	g.started = true
	return g.runners, nil
}

// check returns an error if Run cannot begin.
func (g *Group) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checkLocked()
}

func (g *Group) checkLocked() error {
	if g.started {
		return errors.New("worker: Run was called before on this group")
	}
	var errs []error
	for _, r := range g.runners {
		if c, ok := r.(interface{ check() error }); ok {
			errs = append(errs, c.check())
		}
	}
	return errors.Join(errs...)
}
