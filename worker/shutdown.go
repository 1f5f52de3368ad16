package worker

import (
	"context"
	"errors"
	"slices"
	"time"
)

// untilEnd waits until all workers have ended, or the time to finish is over.
func (p *Pool[T]) untilEnd(ctx context.Context) {
	select {
	case <-p.finished:
	case <-p.stopping:
	case <-ctx.Done():
		p.Stop(p.options.Drain)
	}
	if p.options.DrainTimeout == NoDrain {
		return
	}
	if p.finishesQueue() {
		p.guarded(p.queue.ShutDown)
	}
	p.awaitFinished(p.options.DrainTimeout)
}

// awaitFinished waits until all workers have ended, or limit is over.
func (p *Pool[T]) awaitFinished(limit time.Duration) {
	p.guarded(func() {
		timer := p.options.Clock.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-p.finished:
		case <-timer.C():
		}
	})
}

func (p *Pool[T]) finishesQueue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stop == finishQueue
}

// untilGivenUp ends what has not ended, and gives handlers the time to notice.
func (p *Pool[T]) untilGivenUp() {
	p.Stop(Running)
	select {
	case <-p.finished:
		p.endHandling(nil)
		return
	default:
		p.endHandling(ErrDrainTimeout)
	}
	if p.options.CancelGrace > 0 {
		p.awaitFinished(p.options.CancelGrace)
	}
}

// finish looks what is left undone, and returns what Run does.
func (p *Pool[T]) finish() error {
	unfinished := p.unfinished()
	var queued []T
	p.guarded(func() {
		p.queue.ShutDown()
		p.takeQueued(&queued)
	})
	left := p.leftUndone(unfinished, queued)
	p.guarded(func() { p.logLeft(left) })
	return p.result(left)
}

func (p *Pool[T]) logLeft(left *ShutdownError[T]) {
	if p.logger != nil && !left.empty() {
		// Their numbers, and the first few in the error's text: there may be very many.
		p.logger.Warn("Keys are left undone", "unfinished", len(left.Unfinished),
			"notStarted", len(left.NotStarted), "failing", len(left.Failing), "err", left)
	}
}

func (p *Pool[T]) fatalError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fatal
}

// unfinished returns the keys that are being handled. It is called when starting has ended: a worker that is
// still getting is about to leave, or has a key that it is about to put down, and is waited for.
func (p *Pool[T]) unfinished() []T {
	p.mu.Lock()
	defer p.mu.Unlock()
	for slices.ContainsFunc(p.workers, func(w *worker[T]) bool { return w.state == getting }) {
		p.notGetting.Wait()
	}
	var keys []T
	for _, w := range p.workers {
		if w.state == handling {
			keys = append(keys, w.key)
		}
	}
	return keys
}

// takeQueued takes out of the queue, which is shut down, what it has, and appends it to keys.
func (p *Pool[T]) takeQueued(keys *[]T) {
	for {
		key, err := p.getter.GetContext(context.Background())
		if err != nil {
			return
		}
		*keys = append(*keys, key)
		p.queue.Done(key)
	}
}

// leftUndone puts together what is left, each key once.
func (p *Pool[T]) leftUndone(unfinished, queued []T) *ShutdownError[T] {
	failing, refused := p.failures.all()
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := make(map[T]struct{})
	once := func(keys []T) []T {
		return slices.DeleteFunc(keys, func(key T) bool {
			_, known := seen[key]
			seen[key] = struct{}{}
			return known
		})
	}
	return &ShutdownError[T]{
		Name:       p.options.Name,
		Unfinished: once(unfinished),
		NotStarted: once(slices.Concat(p.notStarted, queued, refused)),
		Failing:    once(failing),
	}
}

// result joins what is left undone to the fatal error.
func (p *Pool[T]) result(left *ShutdownError[T]) error {
	fatal := p.fatalError()
	switch {
	case left.empty():
		return fatal
	case fatal == nil:
		return left
	default:
		return errors.Join(fatal, left)
	}
}
