package worker

import (
	"runtime/debug"
	"slices"
	"time"
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
		defer func() {
			v := recover()
			switch {
			case v == nil:
			case p.options.CrashOnPanic:
				panic(v)
			default:
				p.fail(&PanicError{Value: v, Stack: debug.Stack()})
			}
		}()
		p.watch(w.stop)
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

// watch sleeps until the handler that has run for longest would be stuck. Handlers that start while it
// sleeps need not wake it, because none of them can be stuck before limit has passed.
func (p *Pool[T]) watch(stop <-chan struct{}) {
	limit := p.options.HandlerTimeout + p.options.StuckAfter
	if limit < 0 { // an overflow
		limit = p.options.StuckAfter
	}
	timer := p.options.Clock.NewTimer(limit)
	defer timer.Stop()
	for {
		now := p.options.Clock.Now()
		next := p.reportStuck(now, limit)
		if !timer.Stop() {
			select {
			case <-timer.C():
			default:
			}
		}
		timer.Reset(next.Sub(now))
		if p.options.Clock.Since(now) >= time.Millisecond {
			continue // A fake clock was stepped before the timer ran, or a hook took its time.
		}
		select {
		case <-timer.C():
		case <-stop:
			return
		}
	}
}

// reportStuck reports the handlers that have run for limit and were not reported, and returns when to
// look again.
func (p *Pool[T]) reportStuck(now time.Time, limit time.Duration) time.Time {
	p.mu.Lock()
	workers := slices.Clone(p.workers)
	p.mu.Unlock()
	next := now.Add(limit)
	for _, w := range workers {
		if !w.mu.TryLock() {
			continue // It has no key.
		}
		key, started := w.key, w.started
		report := w.busy && !w.stuck
		switch {
		case !report:
		case now.Sub(started) >= limit:
			w.stuck = true
		default:
			report = false
			if at := started.Add(limit); at.Before(next) {
				next = at
			}
		}
		w.mu.Unlock()
		if !report {
			continue
		}
		running := now.Sub(started)
		if p.logger != nil {
			p.logger.Warn("A handler is stuck", "key", key, "running", running)
		}
		if p.options.OnStuck != nil {
			p.options.OnStuck(key, running)
		}
	}
	return next
}
