package worker

import (
	"context"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// phase is how far the life of a pool has come. It only moves forward. Run takes three steps in it:
//
//	drain        until phaseEnding, or DrainTimeout
//	endHandlers  cancels poolCtx, and waits for CancelGrace
//	endQueue     EndHolds, ShutDown, DropQueued, leftUndone; then phaseReturned
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
// called before Run, and again: a stricter Drain wins, and DrainTimeout does not begin anew. With KeepQueue,
// All means Running. Stop(All) lets Options.Ready return first.
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

// moveOn moves the pool on to a phase, unless it has come further. It ends startCtx once no key is to be
// started: without mu, because that may call methods of Run's context.
func (p *Pool[T]) moveOn(to phase) {
	p.mu.Lock()
	p.moveOnLocked(to)
	reached, cancelStart := p.mu.phase, p.mu.cancelStart
	p.mu.Unlock()
	if reached >= phaseFinishing && cancelStart != nil {
		cancelStart()
	}
}

func (p *Pool[T]) moveOnLocked(to phase) {
	if to > p.mu.phase {
		p.mu.phase = to
		if p.mu.pause.on {
			p.resumeLocked()
		}
		p.wakeRun()
	}
}

// wakeRun wakes Run, which looks again at the phase and the workers.
func (p *Pool[T]) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// fail ends the pool because of err. If it is called more than once, Run returns the first error.
func (p *Pool[T]) fail(err error) {
	first := false
	p.locked(func() {
		if first = p.mu.fatal == nil; first {
			p.mu.fatal = err
		}
	})
	p.Stop(Running)
	if first {
		p.tracker.logger.Error("The workers end because of a fatal error", "err", err)
	}
}

// drain waits until the pool is to end, calls endResync, and waits until the workers have left or the time to
// finish is over. It returns the cause with which the contexts of handlers that still run must end.
func (p *Pool[T]) drain(ctx context.Context, endResync func()) (cause error) {
	defer endResync()
	var timeout <-chan time.Time
	ended := ctx.Done() // nil once that has been noticed
	for {
		var reached phase
		p.locked(func() {
			isEmptying := p.mu.phase == phaseEmptying && p.neededLocked() > 0 // A hold's Done may start workers.
			if p.mu.phase > phaseWorking && !isEmptying && len(p.mu.workers) == 0 {
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
		if reached == phaseEmptying {
			if !p.queue.ShuttingDown() { // Otherwise it would end the ShutDownContext of somebody who waits.
				p.queue.ShutDown()
			}
			go p.tracker.closeHolds() // A key on hold may block others of its group.
		}
		select {
		case <-p.wake:
		case <-ended:
			p.Stop(p.options.Drain)
			ended = nil
		case <-timeout:
			return ErrDrainTimeout
		}
	}
}

// endHandlers ends the handlers' contexts, and waits until all workers have left or CancelGrace is over.
func (p *Pool[T]) endHandlers(cause error) {
	p.moveOn(phaseEnding)
	p.cancelPool(cause)
	if p.options.CancelGrace == NoGrace {
		return
	}
	grace, end := withTimeout(context.Background(), p.options.Clock, p.options.CancelGrace)
	defer end()
	p.waitWhileAny(grace, func(*worker[T]) bool { return true })
}

// waitWhileAny waits while condition, which runs under mu, is true of a worker, until ctx ends.
func (p *Pool[T]) waitWhileAny(ctx context.Context, condition func(w *worker[T]) bool) {
	anyWorker := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.ContainsFunc(p.mu.workers, condition)
	}
	for anyWorker() {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return
		}
	}
}

// endPatience, or CancelGrace if that is longer, is for how long Run waits at its end for Dones, a server and
// Options.List: on the real clock, because a fake one may not move any more.
const endPatience = time.Second

// endQueue ends the holds and, without KeepQueue, the queue, whose keys it drops. It reports what is left.
func (p *Pool[T]) endQueue(resyncEnded <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), max(p.options.CancelGrace, endPatience))
	defer cancel()
	// Workers that get a key do not wait in the queue, because the context of their Get has ended. This wait has
	// no bound: the key that one gets would be in no list.
	p.waitWhileAny(context.Background(), func(w *worker[T]) bool { return w.getting })
	p.waitWhileAny(ctx, func(w *worker[T]) bool { return !w.call.running }) // They are about to leave.
	waitFor(ctx, p.tracker.EndHolds)
	var unfinished, queued []T
	p.locked(func() { unfinished = converted(p.mu.workers, func(w *worker[T]) T { return w.call.result.Key }) })
	held := slices.Collect(keytable.Map(p.tracker.eachHold(), func(h *hold[T]) T { return h.key }))
	sortByText(held)
	unfinished = append(unfinished, held...)
	if !p.options.KeepQueue {
		p.queue.ShutDown()
		// While others have keys of the queue, such as another pool, what is queued is theirs to handle: a key
		// that was added while they have it would be dropped, and nobody would say so. This is an estimate: the
		// two numbers are of two moments.
		if p.queue.Stats().Processing <= len(unfinished) {
			queued = p.queue.DropQueued()
		}
	}
	unfinished = append(unfinished, p.settleAnswers(ctx)...)
	waitFor(ctx, func() { <-resyncEnded }) // Last, because a List may ignore its context.
	left := p.leftUndone(unfinished, queued)
	p.locked(func() { p.mu.left, p.mu.phase = left, phaseReturned })
	if !left.Empty() {
		// Counts and String, because there may be very many keys.
		p.tracker.logger.Warn("Keys are left undone",
			"unfinished", len(left.Unfinished), "notStarted", len(left.NotStarted),
			"failing", len(left.Failing), "left", left.String())
	}
}

// waitFor calls f, and waits until it has returned or ctx ends.
func waitFor(ctx context.Context, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// settleAnswers waits until the queue's server knows what the calls have said. It returns the keys whose end
// the server may not know.
func (p *Pool[T]) settleAnswers(ctx context.Context) (unsettled []T) {
	if p.tracker.answerer == nil {
		return nil
	}
	unsettled, err := p.tracker.answerer.Settle(ctx)
	if err != nil {
		p.tracker.logger.Warn("The queue's server may not know how the last calls have ended",
			"err", err, "keys", len(unsettled))
	}
	return unsettled
}
