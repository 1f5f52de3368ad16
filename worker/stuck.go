package worker

import (
	"context"
	"math"
	"time"

	"k8s.io/utils/clock"
)

// watcher is the goroutine that reports stuck handlers.
type watcher struct{ stop, stopped chan struct{} }

// watchForStuck starts the watcher if Options ask for it.
func (p *Pool[T]) watchForStuck() *watcher {
	if p.options.StuckAfter == 0 {
		return nil
	}
	w := &watcher{stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(w.stopped)
		p.guarded(func() { p.watchHandlers(w) })
	}()
	return w
}

// end ends the watcher and waits for it. It may be nil.
func (w *watcher) end() {
	if w != nil {
		close(w.stop)
		<-w.stopped
	}
}

// watchHandlers sleeps until the handler that has run for longest would be stuck. Handlers that start while it
// sleeps need not wake it, because none of them can be stuck before limit has passed.
func (p *Pool[T]) watchHandlers(w *watcher) {
	limit := p.options.HandlerTimeout + p.options.StuckAfter
	if limit < 0 { // an overflow
		limit = math.MaxInt64
	}
	for next := p.options.Clock.Now().Add(limit); sleepUntil(p.options.Clock, next, w.stop); {
		next = p.reportStuck(limit, w.stop)
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

// reportStuck reports the handlers that have run for limit and were not reported, and returns when to
// look again.
func (p *Pool[T]) reportStuck(limit time.Duration, stop <-chan struct{}) time.Time {
	now := p.options.Clock.Now()
	stuck, next := p.findStuck(now, limit)
	for _, s := range stuck {
		if !p.report(s, stop) {
			break
		}
	}
	return next
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

// report calls the logger and the hook in a goroutine of their own, so that Run need not wait for them:
// it returns true when they have returned, or false when stop is closed, after which it calls neither.
func (p *Pool[T]) report(s stuckCall[T], stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	default:
	}
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		p.guarded(func() {
			if p.logger != nil {
				p.logger.Warn("A handler is stuck", "key", s.Key, "running", s.Duration)
			}
			if p.options.OnStuck != nil {
				p.options.OnStuck(s.ctx, s.RunningKey)
			}
		})
	}()
	select {
	case <-reported:
		return true
	case <-stop:
		return false
	}
}
