package worker

import (
	"context"
	"time"
)

// Failures are stale if somebody else has handled the key since, or removed it from the queue. The limiter shows the first: it counts no
// failure of the key any more. A KeyFinder shows the second: it does not have the key. The books forget stale failures before each call of
// the key, for a snapshot, and every minute. Books without a pool know what the limiter counts only if the program calls AfterHold and, over
// a SharedQueue, from the second failure on.

// checkFailures returns how many calls of key have failed in a row. It asks the queue, while ctx lasts, and forgets stale failures.
func (b *Books[T]) checkFailures(ctx context.Context, key T) failureCount {
	c := b.failures.countOf(key)
	if c.calls == 0 {
		return c
	}
	limiterCount, known := b.limiterCount(ctx, key, c)
	if known && limiterCount == 0 || b.isRemoved(key) {
		if b.failures.forgetIf(key, func(now failureCount) bool { return now == c }) { // Not if it has failed again meanwhile.
			b.forgetChange(key)
		}
		return failureCount{}
	}
	if known && b.hasPool() && b.delayKnower() == limiterKnows { // Without a pool, some retries may have been adds without the limiter.
		c.calls = min(limiterCount+c.unasked, c.calls)
	}
	return c
}

// limiterCount returns how many failures of key the queue's limiter counts. That is not known if it does not count by key, or if the
// server of a SharedQueue does not answer.
func (b *Books[T]) limiterCount(ctx context.Context, key T, c failureCount) (n int, known bool) {
	if !c.limiterCounts {
		return 0, false
	}
	if b.shared == nil {
		return b.queue.NumRequeues(key), true
	}
	n, _, err := b.shared.NumRequeuesContext(ctx, key)
	return n, err == nil
}

// isRemoved reports whether key was removed from the queue. Only a KeyFinder can say that.
func (b *Books[T]) isRemoved(key T) bool {
	// Has comes before ShuttingDown: a key that a shutdown drops meanwhile must not count as removed, or Left would not list it.
	return b.finder != nil && !b.finder.Has(key) && !b.queue.ShuttingDown()
}

// sweepEvery is how often the books look for failing keys that were removed from the queue, or that somebody else has handled. A look
// takes sweepFor at most: if a server is in trouble, very many keys fail, and it must not be asked about all of them all the time.
const (
	sweepEvery = time.Minute
	sweepFor   = time.Second
)

// sweepIfDue starts a sweep if the last one was sweepEvery ago. It is for books without a pool: a pool's Run starts sweeps by itself.
func (b *Books[T]) sweepIfDue() {
	if b.failures.numFailing.Load() == 0 {
		return
	}
	now, last := b.options.Clock.Now().UnixNano(), b.lastSweep.Load()
	if now-last >= int64(sweepEvery) && b.lastSweep.CompareAndSwap(last, now) {
		b.startSweep(context.Background())
	}
}

// startSweep sweeps on a goroutine, because the queue may be slow to answer. It begins where the last sweep has stopped. It does nothing
// while a sweep goes on, or once the queue is shut down.
func (b *Books[T]) startSweep(ctx context.Context) {
	if b.queue.ShuttingDown() || !b.sweeping.CompareAndSwap(false, true) {
		return
	}
	b.sweeps.Go(func() {
		defer b.sweeping.Store(false)
		ctx, cancel := context.WithTimeout(ctx, sweepFor)
		defer cancel()
		b.catchPanic(func() { b.sweepFrom = b.sweep(ctx, b.sweepFrom) })
	})
}

// sweep forgets stale failures, as checkFailures does, until ctx ends. It skips the first from keys, and returns the from with which the
// next sweep goes on.
func (b *Books[T]) sweep(ctx context.Context, from int) (next int) {
	for key := range b.failures.allFailing() {
		switch {
		case next < from:
			next++
		case ctx.Err() != nil:
			return next
		case b.checkFailures(ctx, key).calls > 0: // Otherwise it was forgotten, and the next key has its place.
			next++
		}
	}
	return 0
}

// Forget makes the books forget that key has failed or was given up: for a program that removes a key from the queue, or handles
// it, by itself. (For a failing key that is needed only if the queue is no [KeyFinder], or its limiter does not count by key: otherwise the
// books find out, usually within a minute.) It does not call the queue.
func (b *Books[T]) Forget(key T) {
	b.mu.Lock()
	if e := b.findLocked(key); e != nil {
		e.current.forgotten = true
		e.since = time.Time{}
	}
	b.failures.forget(key) // Under mu: a call that begins later sees it.
	b.mu.Unlock()
	b.forgetInterruptions(key)
	b.forgetChange(key)
}
