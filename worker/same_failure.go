package worker

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
)

// After a failure a key has a delay. If an event brings it earlier and it fails again, that is the same failure: it is not counted, and the
// key comes at the end of the delay. So events cannot inflate its delay (kubernetes/kubernetes#132805).

// delayKnower is who knows whether the delay after a failure is over.
type delayKnower uint8

const (
	// limiterKnows: only the limiter, which does not say so. But it may leave a failure within the delay uncounted: then its count is lower
	// than that of the books, and checkFailures takes the limiter's.
	limiterKnows delayKnower = iota
	// queueKnows: the queue is a workqueue.KeyReader, and says when a key comes due. failureCount.due keeps that.
	queueKnows
	// serverKnows: the queue is a SharedQueue, whose server also counts the failures of all processes.
	serverKnows
)

func (b *Books[T]) delayKnower() delayKnower {
	switch {
	case b.shared != nil:
		return serverKnows
	case b.keyReader != nil && b.poolStats != nil: // Without a pool nobody calls addRateLimited, which notes when the key comes due.
		return queueKnows
	}
	return limiterKnows
}

// findSameFailure finds out whether a call that has failed is the same failure as the one before it: it sets sameFailure and delayLeft,
// and corrects the call's Attempt.
func (e *Entry[T]) findSameFailure() {
	b, r := e.books, &e.result
	switch b.delayKnower() {
	case serverKnows:
		if b.options.MaxRetries == NoRetries || e.parent.Err() != nil {
			return // The answer would change nothing.
		}
		n, left, err := b.shared.NumRequeuesContext(context.Background(), r.Key)
		if n == 0 || err != nil { // 0 may mean that the limiter does not count by key.
			return
		}
		e.failedBefore.calls, e.failedBefore.limiterCounts, r.Attempt = n, true, n+1
		e.delayLeft, e.sameFailure = left, left > 0
	case queueKnows:
		if e.failedBefore.due == 0 {
			return
		}
		e.delayLeft = time.Duration(e.failedBefore.due - r.Started.Add(r.Duration).UnixNano())
		// If the delay has just ended, the queue may not have noticed yet. While the key still waits for that moment, it is the same failure.
		e.sameFailure = e.delayLeft > 0 || b.dueOf(r.Key) == e.failedBefore.due
	}
	if e.sameFailure {
		r.Attempt = e.failedBefore.calls
	}
}

// queuedKey returns what the queue knows of key, if it knows when delays end.
func (b *Books[T]) queuedKey(key T) (k workqueue.KeySnapshot[T]) {
	if b.delayKnower() == queueKnows {
		k, _ = b.keyReader.SnapshotKey(key)
	}
	return k
}

// dueOf returns when key comes due, in nanoseconds since 1970, or 0 if it does not wait or that is not known.
func (b *Books[T]) dueOf(key T) int64 {
	if k := b.queuedKey(key); !k.Due.IsZero() {
		return k.Due.UnixNano()
	}
	return 0
}

// retryAdder is a queue that can take the longer of two delays.
type retryAdder[T comparable] interface {
	AddRateLimitedAfter(key T, atLeast time.Duration)
}

// addRateLimited adds the key when the queue's limiter says, and notes its answer.
func (p *Pool[T]) addRateLimited(e *Entry[T]) {
	key, atLeast := e.result.Key, e.answer.after
	// If the key was added during the call, it comes at once after Done, and the queue does not ask its limiter. This is read before
	// the add below, which may set Again too.
	comesAtOnce := p.books.queuedKey(key).Again
	q, ok := p.queue.(retryAdder[T])
	switch {
	case atLeast <= 0:
		p.queue.AddRateLimited(key)
	case ok:
		q.AddRateLimitedAfter(key, atLeast)
	default: // The limiter is not asked.
		p.addAfter(e, atLeast)
		p.books.failures.noteRetry(key, false, 0, e.failedBefore.unasked+1)
		return
	}
	due := p.books.dueOf(key)
	if due == 0 && comesAtOnce {
		// Without a delay, each add during a call would cost an attempt. So take the delay that the default limiter would have chosen.
		delay := doubled(5*time.Millisecond, e.failedBefore.calls, 1000*time.Second)
		due = p.options.Clock.Now().Add(max(atLeast, delay)).UnixNano()
	}
	p.books.failures.noteRetry(key, p.queue.NumRequeues(key) > 0, due, e.failedBefore.unasked)
}
