package worker

import (
	"context"
	"math"
	"time"

	"k8s.io/utils/clock"
)

// watchForStuck starts a goroutine that reports stuck handlers until end is called.
func (p *Pool[T]) watchForStuck() (end func()) {
	if p.options.StuckAfter == 0 {
		return func() {}
	}
	stop := make(chan struct{})
	go p.guarded(func() { p.watchHandlers(stop) })
	return func() { close(stop) }
}

// watchHandlers sleeps until the handler that has run for longest would be stuck. Handlers that start while it
// sleeps need not wake it, because none of them can be stuck before limit has passed.
func (p *Pool[T]) watchHandlers(stop <-chan struct{}) {
	limit := p.options.HandlerTimeout + p.options.StuckAfter
	if limit < 0 { // an overflow
		limit = math.MaxInt64
	}
	for next := p.options.Clock.Now().Add(limit); sleepUntil(p.options.Clock, next, stop); {
		var calls []stuckCall[T]
		calls, next = p.findStuck(p.options.Clock.Now(), limit)
		for _, c := range calls {
			select {
			case <-stop:
				return
			default:
				p.reportStuck(c)
			}
		}
	}
}

// sleepUntil returns true at the given time, or false when stop is closed.
func sleepUntil(c clock.Clock, at time.Time, stop <-chan struct{}) bool {
	for {
		now := c.Now()
		if !now.Before(at) {
			return true
		}
		timer := c.NewTimer(at.Sub(now))
		if c.Since(now) >= time.Millisecond {
			timer.Stop() // A fake clock was stepped in between, and the timer would be late.
			continue
		}
		defer timer.Stop()
		select {
		case <-timer.C():
			return true
		case <-stop:
			return false
		}
	}
}

// stuckCall is a call that is to be reported.
type stuckCall[T comparable] struct {
	ctx context.Context
	RunningKey[T]
}

// findStuck returns the calls that are stuck and were not reported, and when the next one may be.
func (p *Pool[T]) findStuck(now time.Time, limit time.Duration) (stuck []stuckCall[T], next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = now.Add(limit)
	for _, w := range p.mu.workers {
		at := w.started.Add(limit)
		switch {
		case w.state != handling || w.stuck:
		case !at.After(now):
			w.stuck = true
			k := w.runningKey()
			k.Duration = now.Sub(k.Started)
			stuck = append(stuck, stuckCall[T]{w.ctx, k})
		case at.Before(next):
			next = at
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
