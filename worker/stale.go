package worker

import (
	"context"
	"time"
)

// The failures of a key are stale if somebody else has handled it since, so that the queue's limiter counts none, or has removed it from
// the queue. The books look at them before each call, when somebody asks, and every minute.

// checkFailures returns how many calls of key have failed in a row. It asks the queue, while ctx lasts, and forgets stale failures.
func (b *Books[T]) checkFailures(ctx context.Context, key T) failureCount {
	c := b.failures.countOf(key)
	if c.calls == 0 {
		return c
	}
	limiterCount, known := b.limiterCount(ctx, key, c)
	if known && limiterCount == 0 || b.isRemoved(key) {
		b.failures.forgetIf(key, func(now failureCount) bool { return now == c }) // Not if it has failed again meanwhile.
		b.forgetChange(key)
		return failureCount{}
	}
	// The limiter may take failures for the same one that are counted here, unless a SharedQueue or a pool with a KeyReader finds these.
	if known && b.shared == nil && (b.poolStats == nil || b.keyReader == nil) {
		c.calls = min(limiterCount+c.unasked, c.calls)
	}
	return c
}

// limiterCount returns how many failures of key the queue's limiter counts, if it counts by key and a SharedQueue answers.
func (b *Books[T]) limiterCount(ctx context.Context, key T, c failureCount) (n int, known bool) {
	switch {
	case !c.limited:
		return 0, false
	case b.shared == nil:
		return b.queue.NumRequeues(key), true
	}
	n, _, err := b.shared.NumRequeuesContext(ctx, key)
	return n, err == nil
}

// isRemoved reports whether key was removed from the queue, as far as that says so.
func (b *Books[T]) isRemoved(key T) bool {
	// In this order: a shutdown drops keys that are to be reported.
	return b.finder != nil && !b.finder.Has(key) && !b.queue.ShuttingDown()
}

// sweepEvery is how often the books look for failing keys that were removed from the queue, or that somebody else has handled.
const sweepEvery = time.Minute

// sweepIfDue starts a sweep if the last one was sweepEvery ago. It is for books without a pool, which have no goroutine that waits.
func (b *Books[T]) sweepIfDue() {
	if b.failures.failing.Load() == 0 {
		return
	}
	now, last := b.options.Clock.Now().UnixNano(), b.lastSweep.Load()
	if now-last >= int64(sweepEvery) && b.lastSweep.CompareAndSwap(last, now) {
		go b.catchPanic(func() { b.sweepFailures(time.Second) })
	}
}

// sweepFailures forgets stale failures, as checkFailures does. The queue may be slow to answer. So it asks for no more keys after limit,
// and the next sweep begins with the keys that this one has not reached.
func (b *Books[T]) sweepFailures(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begin, place := b.swept.Swap(0), int64(0)
	for key := range b.failures.all() {
		if place >= begin {
			if ctx.Err() != nil {
				b.swept.Store(place)
				return
			}
			if b.checkFailures(ctx, key).calls == 0 {
				continue // It was forgotten, so its place is that of the next key.
			}
		}
		place++
	}
}

// Forget makes the books forget that key has failed or was given up: for a program that removes a key from the queue, or handles
// it, by itself. (If the key was failing, the books find out within a minute: see [Books.Snapshot].) It does not call the queue.
func (b *Books[T]) Forget(key T) {
	b.forgetInterruptions(key)
	b.forgetFailures(key)
}

// forgetFailures is Forget for a call that has succeeded: countLocked forgets the key's interruptions.
func (b *Books[T]) forgetFailures(key T) {
	if b.failures.known.Load() > 0 {
		b.failures.forgetIf(key, func(failureCount) bool { return true })
		b.forgetChange(key)
	}
}
