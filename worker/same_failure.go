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
	if e.wasForgotten() {
		e.failedBefore = failureCount{}
	}
	switch b, due := e.books, e.failedBefore.due; b.delayKnower() {
	case serverKnows:
		e.failedBefore, e.delayLeft = e.askServer(e.failedBefore)
		e.sameFailure = e.delayLeft > 0
	case queueKnows:
		if due != 0 {
			ended := e.result.Started.Add(e.result.Duration).UnixNano()
			e.delayLeft, e.sameFailure = withinDelay(due, ended, dueOf(b.queuedKey(e.result.Key)))
		}
	}
	e.result.Attempt = e.failedBefore.calls
	if !e.sameFailure {
		e.result.Attempt++
	}
}

// wasForgotten reports whether Forget was called during the call. That the books have no failure of the key any more does not say so: in a
// long call the limiter may have forgotten the key by itself, and a sweep has noticed.
func (e *Entry[T]) wasForgotten() bool {
	e.books.mu.Lock()
	defer e.books.mu.Unlock()
	return e.current.forgotten
}

// askServer returns how often the key has failed before this call, and how much is left of the delay after that. If the server does not
// answer, it returns what the books know. It does not ask if the key is given up in any case (NoRetries), or in no case (the pool has ended).
func (e *Entry[T]) askServer(known failureCount) (before failureCount, left time.Duration) {
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

// withinDelay returns how much is left of a delay when a call ends, and whether it still goes on: until due, and while the queue, which may
// be a little late, still says that the key comes at due. All times are in nanoseconds since 1970.
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

// dueOf returns when the key comes due, in nanoseconds since 1970, or 0 if it does not wait or that is not known.
func dueOf[T comparable](k workqueue.KeySnapshot[T]) int64 {
	if k.Due.IsZero() {
		return 0
	}
	return k.Due.UnixNano()
}

// doubled returns delay, doubled the given number of times, or longest if that is less.
func doubled(delay time.Duration, times int, longest time.Duration) time.Duration {
	return min(delay<<min(times, 20), longest)
}

// retryAdder is a queue that can take the longer of two delays.
type retryAdder[T comparable] interface {
	AddRateLimitedAfter(key T, atLeast time.Duration)
}

// addRateLimited adds the key when the queue's limiter says, and notes its answer.
func (p *Pool[T]) addRateLimited(e *Entry[T]) {
	key, atLeast := e.result.Key, e.answer.after
	q, takesLonger := p.queue.(retryAdder[T])
	if atLeast > 0 && !takesLonger { // The limiter is not asked.
		p.addAfter(e, atLeast)
		p.books.failures.noteRetry(key, false, 0, e.failedBefore.unasked+1)
		return
	}
	// If the key was added during the call, it comes at once after Done, and the queue does not ask its limiter. This is read before
	// the add below, which may set Again too.
	comesAtOnce := p.books.queuedKey(key).Again
	if atLeast > 0 {
		q.AddRateLimitedAfter(key, atLeast)
	} else {
		p.queue.AddRateLimited(key)
	}
	due := dueOf(p.books.queuedKey(key))
	if due == 0 && comesAtOnce {
		// There is no delay, and each add during a call would use up an attempt. So assume the delay of the default limiter.
		delay := doubled(5*time.Millisecond, e.failedBefore.calls, 1000*time.Second)
		due = p.options.Clock.Now().Add(max(atLeast, delay)).UnixNano()
	}
	p.books.failures.noteRetry(key, p.queue.NumRequeues(key) > 0, due, e.failedBefore.unasked)
}
