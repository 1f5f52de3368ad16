package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keyedqueue/workqueue"
)

// worker is one of a pool's workers. A goroutine runs work for it; if a handler ends that goroutine with
// runtime.Goexit, another one takes its place.
type worker[T comparable] struct {
	*Tracked[T]

	// The pool's mu guards these.

	getting    bool   // from nextGet to startCall: it waits for a key, or prepares its call
	donesAtGet uint64 // unfollowedDonesLocked before w last asked the queue. If that grows, w has missed a Done.
}

// growLocked starts workers until there are enough.
func (p *Pool[T]) growLocked() {
	for len(p.mu.workers) < p.mu.target && p.mu.phase < phaseFinishing {
		w := &worker[T]{Tracked: &Tracked[T]{tracker: p.tracker, base: p.poolCtx}, getting: true}
		p.mu.workers = append(p.mu.workers, w)
		go p.work(w)
	}
}

// leaveLocked takes w from the pool.
func (p *Pool[T]) leaveLocked(w *worker[T]) {
	i := slices.Index(p.mu.workers, w)
	p.mu.workers = slices.Delete(p.mu.workers, i, i+1)
	p.mu.departed++
	p.signal()
}

// work gets keys and handles them until w has left the pool.
func (p *Pool[T]) work(w *worker[T]) {
	gone := false // w has left the pool, by leaveLocked
	defer func() {
		switch v := recover(); {
		case gone: // Nothing is left to do.
		case v == nil: // A handler or a hook has called runtime.Goexit.
			go p.work(w)
		default: // A hook, the logger or the queue has panicked or, with CrashOnPanic, the handler.
			p.panicked(v)
			p.locked(func() { p.leaveLocked(w) })
		}
	}()
	w.noteGoroutine()
	for !gone {
		ctx, ok := p.nextGet(w)
		if gone = !ok; gone {
			return
		}
		key, err := p.get(ctx)
		switch {
		case err == nil:
			p.handleKey(w, key)
		case errors.Is(err, workqueue.ErrShutDown):
			gone = p.leaveAfterLastKey(ctx, w)
		case ctx.Err() == nil:
			p.fail(fmt.Errorf("worker: GetContext of the queue: %w", err))
		} // If ctx has ended, SetWorkers or the end of the pool has woken w, and nextGet decides.
	}
}

// nextGet returns the context for w's next GetContext, or takes w from the pool and returns false.
func (p *Pool[T]) nextGet(w *worker[T]) (context.Context, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if surplus := len(p.mu.workers) > p.mu.target; surplus || !p.mayStartLocked() {
		p.leaveLocked(w)
		return nil, false
	}
	w.getting, w.donesAtGet = true, p.unfollowedDonesLocked()
	return p.mu.getCtx, true
}

// leaveAfterLastKey is called when w has got ErrShutDown: the queue is shut down and empty. It returns false
// if w must ask the queue again: a Done may still queue a key, one that was added while a worker had it or
// while it was on hold. A worker asks by itself after its own Done. So
//   - while keys are on hold, w asks again, after the next Done of a hold unless it has missed one
//   - otherwise w leaves if there are other workers
//   - the last worker asks again if it has missed a Done, and otherwise ends the pool
func (p *Pool[T]) leaveAfterLastKey(ctx context.Context, w *worker[T]) (gone bool) {
	holdDone := p.tracker.nextHoldDone() // First: shortenHolds may end the last hold, and queue its key.
	p.tracker.shortenHolds()
	p.mu.Lock()
	missed, isLast := w.donesAtGet != p.unfollowedDonesLocked(), len(p.mu.workers) == 1
	if holdDone == nil && !(isLast && missed) {
		if isLast && p.mu.target > 0 { // A paused pool does not end: see SetWorkers.
			p.moveOnLocked(phaseFinishing) // endHandlers ends startCtx: nothing is left to start.
		}
		p.leaveLocked(w)
		gone = true
	}
	p.mu.Unlock()
	if !gone && !missed {
		select {
		case <-holdDone:
		case <-ctx.Done():
		}
	}
	return gone
}

// unfollowedDonesLocked counts the Dones after which no worker asks the queue by itself: one for each hold
// that has ended, and the last of each worker that has left (one too many if it had none).
func (p *Pool[T]) unfollowedDonesLocked() uint64 {
	return p.mu.departed + p.tracker.mu.records.holds.doneCount.Load()
}

// mayStartLocked reports whether keys are still started.
func (p *Pool[T]) mayStartLocked() bool {
	return p.startCtx.Err() == nil && p.mu.phase < phaseFinishing
}
