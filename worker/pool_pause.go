package worker

import (
	"context"
	"math"
	"time"
)

// poolPause is the pause of a pool. The pool's mu guards it.
type poolPause struct {
	on    bool
	until time.Time // zero for a pause without an end
	stop  func()    // stops the timer for until
}

// Pause makes the pool start no more keys for d, or until [Pool.Resume] if d is [math.MaxInt64]. Workers may
// still start keys that they are getting. It does not wait, and replaces an earlier pause. It does nothing if
// d is not positive, or once the pool is to end, which ends a pause.
func (p *Pool[T]) Pause(d time.Duration) {
	if d <= 0 {
		return
	}
	isSet := make(chan struct{}) // The timer may fire before the pause is set.
	defer close(isSet)
	pause := poolPause{on: true, stop: func() {}}
	if d < math.MaxInt64 { // The clock is foreign code, so it is asked without mu.
		pause.until = p.options.Clock.Now().Add(d)
		pause.stop = afterFunc(p.options.Clock, d, func() { <-isSet; p.endPauseAt(pause.until) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.phase != phaseWorking {
		pause.stop()
		return
	}
	p.endPauseLocked()
	p.mu.pause = pause
	p.wakeIfSurplusLocked()
}

// endPauseAt ends the pause until that time, unless another one has replaced it.
func (p *Pool[T]) endPauseAt(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.pause.until.Equal(until) {
		p.resumeLocked()
	}
}

// Resume ends a pause. It may be called at any time.
func (p *Pool[T]) Resume() { p.locked(p.resumeLocked) }

func (p *Pool[T]) resumeLocked() {
	p.endPauseLocked()
	p.growLocked()
}

func (p *Pool[T]) endPauseLocked() {
	if p.mu.pause.on {
		p.mu.pause.stop()
	}
	p.mu.pause = poolPause{}
}

// neededLocked returns how many workers there should be now: none in a pause.
func (p *Pool[T]) neededLocked() int {
	if p.mu.pause.on {
		return 0
	}
	return p.mu.wanted
}

// wakeIfSurplusLocked wakes all workers that wait for a key, if there are too many. Surplus ones leave in
// nextGet, busy ones after their key.
func (p *Pool[T]) wakeIfSurplusLocked() {
	if p.mu.getCtx != nil && len(p.mu.workers) > p.neededLocked() {
		p.mu.cancelGet()
		p.mu.getCtx, p.mu.cancelGet = context.WithCancel(p.startCtx)
	}
}
