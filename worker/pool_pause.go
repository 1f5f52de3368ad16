package worker

import (
	"context"
	"math"
	"time"
)

// poolPause is the pause of a pool. The pool's mu guards it.
type poolPause struct {
	on    bool
	until time.Time          // zero for a pause without an end
	end   context.CancelFunc // ends the goroutine that waits for until
}

// Pause makes the pool start no more keys for d, or until [Pool.Resume] if d is [math.MaxInt64]. Workers may
// still start keys that they are getting. It does not wait, and replaces an earlier pause. It does nothing if
// d is not positive, or once the pool is to end, which ends a pause.
func (p *Pool[T]) Pause(d time.Duration) {
	now := p.options.Clock.Now() // Before the lock: the clock is foreign code.
	p.mu.Lock()
	defer p.mu.Unlock()
	if d <= 0 || p.mu.phase != phaseWorking {
		return
	}
	p.endPauseLocked()
	p.mu.pause.on = true
	if d < math.MaxInt64 {
		ctx, end := context.WithCancel(context.Background())
		p.mu.pause.until, p.mu.pause.end = now.Add(d), end
		go func() {
			if sleep(ctx, p.options.Clock, d) {
				p.locked(func() {
					if ctx.Err() == nil { // No other pause has replaced this one.
						p.resumeLocked()
					}
				})
			}
		}()
	}
	p.dismissLocked()
}

// Resume ends a pause. It may be called at any time.
func (p *Pool[T]) Resume() { p.locked(p.resumeLocked) }

func (p *Pool[T]) resumeLocked() {
	p.endPauseLocked()
	if p.mu.getCtx != nil {
		p.growLocked()
	}
}

func (p *Pool[T]) endPauseLocked() {
	if p.mu.pause.end != nil {
		p.mu.pause.end()
	}
	p.mu.pause = poolPause{}
}

// wantedLocked returns how many workers there should be now.
func (p *Pool[T]) wantedLocked() int {
	if p.mu.pause.on {
		return 0
	}
	return p.mu.target
}

// dismissLocked wakes all workers that wait for a key, if there are too many. Surplus ones leave in nextGet,
// busy ones after their key.
func (p *Pool[T]) dismissLocked() {
	if p.mu.getCtx != nil && len(p.mu.workers) > p.wantedLocked() {
		p.mu.cancelGet()
		p.mu.getCtx, p.mu.cancelGet = context.WithCancel(p.startCtx)
	}
}
