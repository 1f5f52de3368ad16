package worker

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
)

// After a failure a key has a delay. If an event brings it earlier and it fails again, that is the same failure: it is not counted, and the
// key comes at the end of the delay. So events cannot inflate its delay (kubernetes/kubernetes#132805). Who knows when the delay ends:
//
//	a SharedQueue             its server, which also counts the failures of all processes
//	a workqueue.KeyReader     the queue, which says when the key comes due: see failureCount.due
//	another queue             its limiter, if that ignores failures within the delay

// findSameFailure sets sameFailure and delayLeft of a call that has failed.
func (e *Entry[T]) findSameFailure() {
	r := &e.result
	if e.books.shared != nil {
		e.askServer()
	} else if e.failed.due != 0 {
		e.delayLeft = time.Duration(e.failed.due - r.Started.Add(r.Duration).UnixNano())
		e.sameFailure = e.delayLeft > 0 || e.books.dueOf(r.Key) == e.failed.due // At the very end of the delay the key may still wait.
	}
	if e.sameFailure {
		r.Attempt = e.failed.calls
	}
}

// askServer takes the number of failures from a SharedQueue, which counts those of all processes.
func (e *Entry[T]) askServer() {
	if e.books.options.MaxRetries == NoRetries || e.parent.Err() != nil {
		return // The answer would change nothing.
	}
	// 0 may mean that the limiter does not count by key.
	if n, left, err := e.books.shared.NumRequeuesContext(context.Background(), e.result.Key); n > 0 && err == nil {
		e.failed.calls, e.failed.limiterCounts, e.result.Attempt = n, true, n+1
		e.delayLeft, e.sameFailure = left, left > 0
	}
}

// queuedKey returns what a KeyReader knows of key. A SharedQueue is not asked: its server finds the same failures by itself.
func (b *Books[T]) queuedKey(key T) (k workqueue.KeySnapshot[T]) {
	if b.keyReader != nil && b.shared == nil {
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
