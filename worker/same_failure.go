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
	// limiterKnows: only the limiter, which does not say so. But it may leave a failure within the delay uncounted: then checkFailures takes
	// its lower count at the next call.
	limiterKnows delayKnower = iota
	// queueKnows: the queue, a workqueue.KeyReader, says when a key comes due. addRateLimited notes that, and findSameFailure compares.
	queueKnows
	// serverKnows: the server of a SharedQueue counts the failures of all processes. findSameFailure asks it how much of the delay is left.
	serverKnows
)

func (b *Books[T]) delayKnower() delayKnower {
	switch {
	case b.shared != nil:
		return serverKnows
	case b.keyReader != nil && b.hasPool(): // Without a pool nobody calls addRateLimited, which notes when the key comes due.
		return queueKnows
	}
	return limiterKnows
}

// findSameFailure finds out whether a call that has failed is the same failure as the one before it, and corrects the call's Attempt.
func (e *Entry[T]) findSameFailure() {
	b, before := e.books, e.failedBefore
	if b.failures.countOf(e.result.Key).calls == 0 { // Forget was called during the call.
		before = failureCount{}
	}
	switch b.delayKnower() {
	case serverKnows:
		before, e.delayLeft = e.askServer(before)
		e.sameFailure = e.delayLeft > 0
	case queueKnows:
		if before.due != 0 {
			ended := e.result.Started.Add(e.result.Duration).UnixNano()
			e.delayLeft, e.sameFailure = withinDelay(before.due, ended, b.dueOf(e.result.Key))
		}
	}
	e.failedBefore, e.result.Attempt = before, before.calls
	if !e.sameFailure {
		e.result.Attempt++
	}
}

// askServer returns how often the key has failed before this call, and how much is left of the delay after that. If the server does not
// answer, or its answer would change nothing, it returns what the books know.
func (e *Entry[T]) askServer(known failureCount) (failed failureCount, left time.Duration) {
	b := e.books
	if b.options.MaxRetries == NoRetries || e.base.Err() != nil {
		return known, 0
	}
	n, left, err := b.shared.NumRequeuesContext(context.Background(), e.result.Key)
	if n == 0 || err != nil { // 0 may mean that the limiter does not count by key.
		return known, 0
	}
	known.calls, known.limiterCounts = n, true
	return known, left
}

// withinDelay returns how much is left, when a call ends, of a delay that ends at due, and whether it still goes on. All times are in
// nanoseconds since 1970. next is when the queue says that the key comes due: if the delay has just ended, the queue may not have noticed
// yet. While the key still waits for that moment, the delay goes on.
func withinDelay(due, ended, next int64) (left time.Duration, goesOn bool) {
	return time.Duration(due - ended), due > ended || due == next
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
		// The limiter was not asked, so there is no delay, and each add during a call would use up an attempt. So assume the delay of the
		// default limiter.
		delay := doubled(5*time.Millisecond, e.failedBefore.calls, 1000*time.Second)
		due = p.options.Clock.Now().Add(max(atLeast, delay)).UnixNano()
	}
	p.books.failures.noteRetry(key, p.queue.NumRequeues(key) > 0, due, e.failedBefore.unasked)
}
