package wait

import (
	"context"
	"sync"
)

// Group starts goroutines and waits for them. The zero value is an empty group, ready for use; it must not be
// copied after the first use. Several goroutines may use it, with the rule of sync.WaitGroup: while the group
// is empty, Start must not run at the same time as Wait. After Wait the group can be used again. A panic of a
// function in the group is not recovered, and ends the program.
type Group struct {
	running sync.WaitGroup
}

// Start runs f in a new goroutine of the group. It does not block.
func (g *Group) Start(f func()) { g.running.Go(f) }

// StartWithChannel is Start for an f that takes a channel, and should return when that is closed.
func (g *Group) StartWithChannel(stopCh <-chan struct{}, f func(stopCh <-chan struct{})) {
	g.Start(func() { f(stopCh) })
}

// StartWithContext is Start for an f that takes a context, and should return when that ends.
func (g *Group) StartWithContext(ctx context.Context, f func(context.Context)) {
	g.Start(func() { f(ctx) })
}

// Wait blocks until every function that was started has returned. An empty group does not block.
func (g *Group) Wait() { g.running.Wait() }
