package worker

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// phase is how far the life of a pool has come. It only moves forward. Run takes three steps in it:
//
//	drain        until phaseEnding, or DrainTimeout
//	endHandlers  cancels poolCtx, and waits for CancelGrace
//	endQueue     leftBehind, endHolds, shutDownQueue, DropQueued, leftUndone; then phaseReturned
type phase uint8

const (
	// phaseWorking: workers get keys and handle them, once Run has been called.
	phaseWorking phase = iota
	// phaseEmptying, after Stop(All): the same, but the queue is shut down.
	phaseEmptying
	// phaseFinishing, after Stop(Running), a fatal error, or the queue's last key: no key is started any more.
	phaseFinishing
	// phaseEnding, after Stop(Nothing), DrainTimeout, or the last worker: the handlers' contexts end.
	phaseEnding
	// phaseReturned: Run has returned, or is about to. Handlers may have been left behind.
	phaseReturned
)

// Stop makes Run end, as the end of its context does, but with the given Drain. It does not wait. It may be
// called any number of times, also before Run. The strictest Drain of all calls wins, and the time to finish
// does not begin anew. With KeepQueue, All means Running. While Options.Ready runs, Stop(All) waits for it.
func (p *Pool[T]) Stop(drain Drain) {
	switch {
	case drain == Nothing:
		p.moveOn(phaseEnding)
	case drain == Running || p.options.KeepQueue:
		p.moveOn(phaseFinishing)
	default:
		p.moveOn(phaseEmptying)
	}
}

// moveOn moves the pool on to a phase, unless it has come further. It ends startCtx, if that is due, without
// mu: that may call methods of Run's context.
func (p *Pool[T]) moveOn(to phase) {
	p.locked(func() { p.moveOnLocked(to) })
	p.endStartIfDue()
}

// endStartIfDue ends startCtx once no key is to be started.
func (p *Pool[T]) endStartIfDue() {
	p.mu.Lock()
	reached, cancelStart := p.mu.phase, p.mu.cancelStart
	p.mu.Unlock()
	if reached >= phaseFinishing && cancelStart != nil {
		cancelStart()
	}
}

func (p *Pool[T]) moveOnLocked(to phase) {
	if to > p.mu.phase {
		p.mu.phase = to
		p.signal()
	}
}

// signal wakes Run, which looks again at the phase, the workers and whether there is a record.
func (p *Pool[T]) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// fail ends the pool because of err. If it is called more than once, Run returns the first error.
func (p *Pool[T]) fail(err error) {
	p.mu.Lock()
	first := p.mu.fatal == nil
	if first {
		p.mu.fatal = err
	}
	p.mu.Unlock()
	p.Stop(Running)
	if first {
		p.tracker.catchPanic(func() {
			p.tracker.log(context.Background(), slog.LevelError,
				"The workers end because of a fatal error", "err", err)
		})
	}
}

// drain waits until the pool is to end, calls endResync, and waits until the workers have left or the time to
// finish is over. It returns the cause with which the contexts of handlers that still run must end. Meanwhile
// it starts a sweep every minute while there are records.
func (p *Pool[T]) drain(ctx context.Context, endResync func()) (cause error) {
	var timeout, sweep <-chan time.Time
	ended := ctx.Done() // nil once that has been noticed
	for {
		var reached phase
		p.locked(func() {
			if p.mu.phase > phaseWorking && len(p.mu.workers) == 0 {
				p.moveOnLocked(phaseEnding)
			}
			reached = p.mu.phase
		})
		if reached >= phaseEnding {
			if p.options.Drain == Nothing && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return ErrStopped
		}
		if reached > phaseWorking && timeout == nil {
			timer := p.options.Clock.NewTimer(p.options.DrainTimeout)
			defer timer.Stop()
			timeout = timer.C()
			endResync()
		}
		if reached == phaseEmptying && !p.queue.ShuttingDown() {
			p.tracker.catchPanic(p.shutDownQueue)
		}
		if sweep == nil && p.tracker.mu.records.notEmpty.Load() { // An idle pool has no timer.
			sweep = p.options.Clock.After(sweepEvery)
			p.willSweep.Store(true)
		}
		select {
		case <-p.changed:
		case <-ended:
			p.Stop(p.options.Drain)
			ended = nil
		case <-timeout:
			return ErrDrainTimeout
		case <-sweep:
			sweep = nil
			p.willSweep.Store(false)
			p.tracker.startSweep(p.startCtx)
		}
	}
}

// endPatience bounds the waits at the end of Run for Dones, the last sweep and List, on the real clock: a
// fake one may not move any more.
const endPatience = 100 * time.Millisecond

// shutDownQueue shuts the queue down, which drops the keys that wait. The sweep comes first, because Left
// must not list keys that were removed, and after the shutdown isOver is never true.
func (p *Pool[T]) shutDownQueue() {
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	p.tracker.sweep(ctx, 0)
	p.queue.ShutDown()
}

// endHandlers ends the handlers' contexts, and waits until all workers have left or CancelGrace is over.
func (p *Pool[T]) endHandlers(cause error) {
	p.moveOn(phaseEnding)
	p.cancelPool(cause)
	if p.options.CancelGrace == NoGrace {
		return
	}
	p.tracker.catchPanic(func() {
		timer := p.options.Clock.NewTimer(p.options.CancelGrace)
		defer timer.Stop()
		p.waitWhileAny(func(*worker[T]) bool { return true }, timer.C())
	})
}

// waitWhileAny waits while condition, which runs under both mus, is true of a worker, up to timeout.
func (p *Pool[T]) waitWhileAny(condition func(w *worker[T]) bool, timeout <-chan time.Time) {
	anyWorker := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tracker.mu.Lock()
		defer p.tracker.mu.Unlock()
		return slices.ContainsFunc(p.mu.workers, condition)
	}
	for anyWorker() {
		select {
		case <-p.changed:
		case <-timeout:
			return
		}
	}
}

// endQueue ends the holds and, without KeepQueue, the queue, whose keys it drops. It reports what is left.
func (p *Pool[T]) endQueue() {
	unfinished := append(p.leftBehind(), p.endHolds()...)
	var queued []T
	if !p.options.KeepQueue {
		p.tracker.catchPanic(p.shutDownQueue)
		// While others have keys of the queue, such as another pool, what is queued is theirs to handle: a key
		// that was added while they have it would be dropped, and nobody would say so.
		if p.queue.Stats().Processing <= len(unfinished) {
			p.tracker.catchPanic(func() { queued = p.queue.DropQueued() })
		}
	}
	unfinished = append(unfinished, p.settleAnswers()...)
	left := p.leftUndone(unfinished, queued)
	p.locked(func() { p.mu.left, p.mu.phase = left, phaseReturned })
	if left.Empty() {
		return
	}
	p.tracker.catchPanic(func() {
		// Counts and String, because there may be very many keys.
		p.tracker.log(context.Background(), slog.LevelWarn, "Keys are left undone",
			"unfinished", len(left.Unfinished), "notStarted", len(left.NotStarted),
			"failing", len(left.Failing), "left", left.String())
	})
	if p.options.OnLeft != nil {
		_ = p.tracker.onOwnGoroutine(func() error { p.options.OnLeft(left); return nil })
	}
}

// settleAnswers waits until the queue's server knows what the calls have said, for as long as Run waits for
// handlers, on the real clock. It returns the keys whose end the server may not know.
func (p *Pool[T]) settleAnswers() (unsettled []T) {
	if p.tracker.answers == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(p.options.CancelGrace, endPatience))
	defer cancel()
	p.tracker.catchPanic(func() {
		var err error
		if unsettled, err = p.tracker.answers.Settle(ctx); err != nil {
			p.tracker.log(ctx, slog.LevelWarn, "The queue's server may not know how the last calls have ended",
				"err", err, "keys", len(unsettled))
		}
	})
	return unsettled
}

// leftBehind returns the keys of the handlers that are left behind. It first waits for the other workers:
// those that get a key (getting), without a limit, because their Get's context has ended; and those that give
// one back or are in Done (not running), up to endPatience.
func (p *Pool[T]) leftBehind() (keys []T) {
	p.waitWhileAny(func(w *worker[T]) bool { return w.getting || !w.running }, time.After(endPatience))
	p.waitWhileAny(func(w *worker[T]) bool { return w.getting }, nil)
	p.locked(func() {
		for _, w := range p.mu.workers {
			keys = append(keys, w.result.Key) // No call begins any more that could write it.
		}
	})
	return keys
}

// endHolds ends the holds. If a Done blocks for endPatience, it returns the keys that are not Done.
func (p *Pool[T]) endHolds() (notDone []T) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.tracker.EndHolds()
	}()
	for {
		select {
		case <-ended:
			return nil
		case <-p.tracker.nextHoldDone():
		case <-time.After(endPatience):
			return slices.Collect(eachRecord(p.tracker, func(key T, rec *record[T]) (T, bool) {
				return key, rec.hold != nil
			}))
		}
	}
}
