package worker

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
)

// watchForStuck starts a goroutine that reports stuck handlers until end is called.
func (p *Pool[T]) watchForStuck() (end func()) {
	if p.options.StuckAfter == 0 {
		return func() {}
	}
	stop := make(chan struct{})
	loop := dueloop.New(p.options.Clock, nil) // for its clock and its timer
	go p.guarded(func() { p.watchHandlers(loop, stop) })
	return func() {
		close(stop)
		loop.Wake()
	}
}

// watchHandlers sleeps until the handler that has run for longest would be stuck. Handlers that start while it
// sleeps need not wake it, because none of them can be stuck before limit has passed.
func (p *Pool[T]) watchHandlers(loop *dueloop.Loop, stop <-chan struct{}) {
	limit := dueloop.AddSaturated(p.options.HandlerTimeout, p.options.StuckAfter)
	timer := loop.NewTimer()
	defer timer.Stop()
	for {
		now := loop.Now()
		calls, next := p.findStuck(loop.Time(now), limit)
		for _, c := range calls {
			if isClosed(stop) {
				return
			}
			p.reportStuck(c)
		}
		timer.Sleep(dueloop.AddSaturated(now, next))
		if isClosed(stop) {
			return
		}
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

// stuckCall is a call that is to be reported.
type stuckCall[T comparable] struct {
	ctx context.Context
	RunningKey[T]
}

// findStuck returns the calls that are stuck and were not reported, and after how long the next one may be.
func (p *Pool[T]) findStuck(now time.Time, limit time.Duration) (stuck []stuckCall[T], next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = limit
	for _, w := range p.mu.workers {
		if w.state != handling || w.Stuck {
			continue
		}
		k := w.RunningKey
		k.Duration = now.Sub(k.Started)
		if k.Duration >= limit {
			w.Stuck, k.Stuck = true, true
			stuck = append(stuck, stuckCall[T]{w.ctx, k})
		} else {
			next = min(next, limit-k.Duration)
		}
	}
	return stuck, next
}

func (p *Pool[T]) reportStuck(c stuckCall[T]) {
	if p.logger != nil {
		p.logger.Warn("A handler is stuck", "key", c.Key, "running", c.Duration)
	}
	if p.options.OnStuck != nil {
		p.options.OnStuck(c.ctx, c.RunningKey)
	}
}
