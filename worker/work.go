package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
)

// This file follows a key from top to bottom: work gets it; handleKey begins its call, and calls Done last;
// callHandler calls the handler; settle decides by its answer what becomes of the key, and does that.

// worker is one of a pool's workers. A goroutine runs work for it; if a handler ends that goroutine with
// runtime.Goexit, another one takes its place.
type worker[T comparable] struct {
	*Tracked[T]

	// The pool's mu guards these.

	getting      bool   // from nextGet to the start of the call, or to the end of the worker
	departedSeen uint64 // the pool's departed at the last nextGet

	endedHoldsSeen uint64 // how many holds had ended when awaitHeld last found none. Only w's goroutine uses it.
}

// work gets keys and handles them until w has left the pool.
func (p *Pool[T]) work(w *worker[T]) {
	returned := false
	defer func() {
		if !returned {
			v := recover()
			if v == nil { // A handler has called runtime.Goexit.
				go p.work(w)
				return
			}
			p.panicked(v) // A hook, the logger or the queue has panicked. (Handlers' panics do not get here.)
			p.locked(func() { p.leaveLocked(w) })
		}
	}()
	w.noteGoroutine()
	var getErr error
	for {
		ctx, ok := p.nextGet(w, getErr)
		if !ok {
			returned = true
			return
		}
		var key T
		key, getErr = p.get(ctx)
		switch {
		case getErr == nil:
			p.handleKey(w, key)
		case errors.Is(getErr, workqueue.ErrShutDown):
			if p.awaitHeld(ctx, w) {
				getErr = nil // The queue may have a key again.
			}
		case ctx.Err() == nil:
			p.fail(fmt.Errorf("worker: GetContext of the queue: %w", getErr))
		}
	}
}

// nextGet returns the context for w's next GetContext, or takes w from the pool and returns false. getErr is
// what the last one returned.
func (p *Pool[T]) nextGet(w *worker[T], getErr error) (context.Context, bool) {
	shutDown := errors.Is(getErr, workqueue.ErrShutDown) // Not under mu: the error may be foreign.
	p.mu.Lock()
	defer p.mu.Unlock()
	isLast := len(p.mu.workers) == 1
	// The queue is shut down and empty, but the Done of another worker may still queue its key. So:
	//   - w leaves if there are other workers: each of them asks the queue again after its Done.
	//   - The last worker ends the pool,
	//   - unless another one has left since w asked the queue: the Done of that one may have queued a key.
	//     Then w asks once more.
	if shutDown && isLast && w.departedSeen == p.mu.departed {
		p.moveOnLocked(phaseFinishing)
	}
	isSurplus := len(p.mu.workers) > p.mu.target
	if shutDown && !isLast || isSurplus || !p.mayStartLocked() {
		p.leaveLocked(w)
		return nil, false
	}
	w.getting, w.departedSeen = true, p.mu.departed
	return p.mu.getCtx, true
}

// awaitHeld is called when the queue is shut down and empty. It ends all pauses. Then, if keys are on hold,
// it waits for the end of one, which may queue the key. It returns false, and w may leave, if no key is on
// hold and no hold has ended since w last asked.
func (p *Pool[T]) awaitHeld(ctx context.Context, w *worker[T]) bool {
	p.tracker.endPauses()
	ended, changed := p.tracker.watchHolds()
	if changed == nil {
		again := ended != w.endedHoldsSeen
		w.endedHoldsSeen = ended
		return again
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	return true
}

// handleKey does everything with a key that a worker has got. Done comes last, exactly once whatever panics
// or ends the goroutine before.
func (p *Pool[T]) handleKey(w *worker[T], key T) {
	c := w.Tracked
	defer c.doneOrHold(p.done)
	defer c.endCall()
	// A panic of prepare ends the pool, so startCall below returns false.
	p.catchPanic(func() { c.prepare(key) })
	switch {
	case p.startCall(w):
		p.callHandler(c)
	case c.leaseLost: // Another process may have got the key.
	case p.options.KeepQueue || p.tracker.leaser != nil: // Somebody else will handle the key.
		p.giveBack(c)
	default:
		p.noteNotStarted(key)
	}
}

// startCall begins the call of w. It returns false if the lease is lost or no key is started any more.
func (p *Pool[T]) startCall(w *worker[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.getting = false
	if w.leaseLost || !p.mayStartLocked() {
		p.tracker.noteKey(w.Tracked) // Its Done may block.
		return false
	}
	p.tracker.addRunning(w.Tracked)
	return true
}

// mayStartLocked reports whether keys are still started.
func (p *Pool[T]) mayStartLocked() bool {
	return p.startCtx.Err() == nil && p.mu.phase < phaseFinishing
}

// giveBack adds a key that was not started to the queue again. It reports the key if somebody has shut the
// queue down, or the add panics.
func (p *Pool[T]) giveBack(c *Tracked[T]) {
	key, added := c.result.Key, false
	defer func() {
		if !added || p.queue.ShuttingDown() {
			p.noteNotStarted(key)
		}
	}()
	causes := p.queue.Causes(key)
	p.addAfter(c, 0)
	added = true
	// An add with a cause has priority 0, and the higher one counts.
	if len(causes.Last) > 0 && c.priority >= 0 {
		// The queue takes Causes.First from the first cause that it gets. So it gets the oldest cause twice:
		// first with that time, which may be before its own, and then as it is, which replaces it in Last.
		oldest := causes.Last[0]
		oldest.Time = causes.First
		workqueue.AddCause(p.queue, key, oldest)
		for _, cause := range causes.Last {
			workqueue.AddCause(p.queue, key, cause)
		}
	}
}

// noteNotStarted puts key, which came too late, on the list of Left.
func (p *Pool[T]) noteNotStarted(key T) {
	p.locked(func() { p.mu.notStarted = append(p.mu.notStarted, key) })
}

// callHandler calls the handler, and does what its answer asks for, also if the handler panics or ends the
// goroutine.
func (p *Pool[T]) callHandler(c *Tracked[T]) {
	returned := false
	defer func() {
		if !returned {
			if v := recover(); v != nil {
				c.failWithPanic(v)
			} else {
				c.result.Err = ErrGoexit
			}
		}
		p.settle(c)
		if c.answer.fatal {
			p.fail(c.result.Err)
		}
		c.report()
	}()
	c.result.Err = p.handler(c.ctx, c.result.Key)
	returned = true
}

// settle decides what becomes of the key, and does that in the queue. If the queue or its limiter panics,
// Left has the key.
func (p *Pool[T]) settle(c *Tracked[T]) {
	r := &c.result
	safe, list := false, &p.mu.notRetried
	defer func() {
		if !safe && !c.crashing {
			p.locked(func() { *list = append(*list, r.Key) })
		}
	}()
	c.decide() // The queue itself deals with a failure.
	safe, list = r.Next != NextRequeue && r.Next != NextHold && r.Next != NextInterrupted, &p.mu.notStarted
	if p.tracker.recordOutcome(c); p.tracker.mu.records.notEmpty.Load() {
		p.signal() // Run sweeps only while there are records.
	}
	if p.queue.ShuttingDown() { // The key has come after all, by an add from before the shutdown.
		p.locked(func() { delete(p.mu.refused, r.Key) })
	}
	switch r.Next {
	case NextForget:
		p.queue.Forget(r.Key)
	case NextRequeue:
		p.addAgain(c)
		safe = true
		p.queue.Forget(r.Key) // After the add: the limiter may panic, and the key must not be lost.
	case NextHold:
		p.addAgain(c)
	case NextInterrupted:
		if !c.callCtx.wasInterrupted() { // ErrAdded came from elsewhere, so perhaps no add brings the key.
			p.addAgain(c)
		}
	}
	safe = true
}

// addAgain adds the key for the time, and with the priority, that the handler has asked for.
func (p *Pool[T]) addAgain(c *Tracked[T]) {
	if c.answer.priority != nil {
		c.priority = *c.answer.priority
	}
	p.addAfter(c, c.answer.after)
	if c.answer.after <= 0 && p.queue.ShuttingDown() {
		p.locked(func() { p.mu.refused[c.result.Key] = struct{}{} })
	}
}

// addAfter adds the key with its priority.
func (p *Pool[T]) addAfter(c *Tracked[T], after time.Duration) {
	if p.tracker.priorities != nil {
		p.tracker.priorities.AddWithPriority(c.result.Key, c.priority, after)
	} else {
		p.queue.AddAfter(c.result.Key, after)
	}
}
