package worker

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
)

// After a failure a key has a delay. If an event brings it earlier and it fails again, that is the same failure: it is not counted, and the
// key comes at the end of the delay. So events cannot inflate its delay (kubernetes/kubernetes#132805).

// delayKnower is who knows when a delay ends.
type delayKnower uint8

const (
	limiterKnows delayKnower = iota // and may count no failure within the delay: so its count wins if it is lower
	queueKnows                      // a workqueue.KeyReader says when the key comes due: see failureCount.due
	serverKnows                     // that of a SharedQueue, which also counts the failures of all processes
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

// findSameFailure sets sameFailure and delayLeft of a call that has failed, and corrects its Attempt.
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
		e.failed.calls, e.failed.limiterCounts, r.Attempt = n, true, n+1
		e.delayLeft, e.sameFailure = left, left > 0
	case queueKnows:
		if e.failed.due == 0 {
			return
		}
		e.delayLeft = time.Duration(e.failed.due - r.Started.Add(r.Duration).UnixNano())
		e.sameFailure = e.delayLeft > 0 || b.dueOf(r.Key) == e.failed.due // At the very end of the delay the key may still wait.
	}
	if e.sameFailure {
		r.Attempt = e.failed.calls
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
	comesAtOnce := p.books.queuedKey(key).Again // Asked before the add below, which may set Again, too.
	q, ok := p.queue.(retryAdder[T])
	switch {
	case atLeast <= 0:
		p.queue.AddRateLimited(key)
	case ok:
		q.AddRateLimitedAfter(key, atLeast)
	default: // The limiter is not asked.
		p.addAfter(e, atLeast)
		p.books.failures.noteRetry(key, false, 0, e.failed.unasked+1)
		return
	}
	due := p.books.dueOf(key)
	if due == 0 && comesAtOnce {
		// The queue has not asked its limiter. So take the default limiter's delay: without one, each add during a call costs an attempt.
		delay := doubled(5*time.Millisecond, e.failed.calls, 1000*time.Second)
		due = p.options.Clock.Now().Add(max(atLeast, delay)).UnixNano()
	}
	p.books.failures.noteRetry(key, p.queue.NumRequeues(key) > 0, due, e.failed.unasked)
}
