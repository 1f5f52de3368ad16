package priorityqueue

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/failures"
)

// This file is about keys that the limiter makes wait.
//
// The limiter is foreign code: it may be slow or call the queue. So it is asked without the queue's
// lock, and the key is not touched until there is an answer. If the key was added or handed out meanwhile,
// the answer is merged as any other add. When runs under a lock of its own, asking, which only rate-limited
// adds and Fail take. Of many adds of one key at once, the first asks, and the others find the key waiting
// (client-go asks for each: kubernetes/kubernetes#112325). A slow limiter delays the rate-limited adds of all
// keys.
//
// A rate-limited add of a key that a worker holds says that the worker has failed, as Fail does, but no later
// Fail takes it back: somebody else may have made it. Both call fail: takeBackRetry (with the queue's lock),
// Fail of package failures (with its own, and the limiter with neither), addPrepared (with the queue's).

// AddRateLimited adds key after the limiter's delay: see [AddOpts].RateLimited. A key that a worker holds
// keeps the priority of its hand-out; for any other, it asks for priority 0.
func (q *Queue[T]) AddRateLimited(key T) {
	q.add(key, request{AddOpts: AddOpts{RateLimited: true}, keepPriority: true})
}

// quietly makes a retry that comes due while its key is held interrupt nobody.
var quietly = &workqueue.Cause{Quiet: true}

// See [workqueue.ExtendedRateLimiting]. The key keeps the priority of its hand-out. A give-up leaves what
// others have added since the hand-out. The error is nil.
func (q *Queue[T]) Fail(_ context.Context, key T, f workqueue.Failure) (workqueue.Retry, error) {
	opts := AddOpts{RateLimited: true, AtLeast: f.AtLeast, Cause: quietly}
	r := request{AddOpts: opts, keepPriority: true, isRetry: true}
	q.complete(&r)
	f.AtLeast = 0 // It is in r.
	k := q.prepare(key)
	q.asking.Lock()
	defer q.asking.Unlock()
	return workqueue.Retry(q.fail(k, r, failures.Failure(f))), nil
}

// See [workqueue.ExtendedRateLimiting].
func (q *Queue[T]) Failures(key T) workqueue.Failures { return workqueue.Failures(q.failures.Of(key)) }

// See [workqueue.ExtendedRateLimiting].
func (q *Queue[T]) FailingKeys(limit int) []workqueue.KeySnapshot[T] {
	return failures.Show(q.failures, limit, q.SnapshotKey)
}

// Forget makes the limiter and the queue forget the key's failures. The worker still has to call Done. A Fail
// that is under way may count its failure afterwards.
func (q *Queue[T]) Forget(key T) {
	q.failures.Forget(key)
	q.config.RateLimiter.Forget(key)
}

// NumRequeues returns how many failures in a row the queue has counted, or the limiter if that is more.
func (q *Queue[T]) NumRequeues(key T) int {
	return max(q.failures.Of(key).Count, q.config.RateLimiter.NumRequeues(key))
}

// addRateLimited adds the key after the limiter's delay. It does not ask if the answer cannot matter.
func (q *Queue[T]) addRateLimited(k prepared[T], r request) {
	q.asking.Lock()
	defer q.asking.Unlock()
	switch settled, held := q.addWithoutLimiter(k, r); {
	case settled:
	case held:
		q.fail(k, r, failures.Failure{})
	default:
		r.After = r.delayWith(q.config.RateLimiter.When(k.key))
		q.addPrepared(&r, k)
	}
}

// addWithoutLimiter adds the key if the limiter's answer cannot matter. It returns settled if so, and after
// shutdown. Otherwise held reports whether a worker holds the key.
func (q *Queue[T]) addWithoutLimiter(k prepared[T], r request) (settled, held bool) {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceToNowLocked()
	s, info := q.findLocked(k.hash, k.key)
	switch {
	case q.shuttingDown.Load(): // No add has an effect.
	case info == nil:
		return false, false
	case info.state == queued: // It comes anyway. Its priority may change.
	case info.state == waiting && info.byLimiter:
		// The limiter's delay is in the key's time, unless an add has brought that forward. The time can be past
		// if many keys are due.
		r.After = r.delayWith(dueloop.AddSaturated(max(now, q.dueWithoutIntervalLocked(s)), -now))
	default:
		return false, info.state.isHeld()
	}
	q.addLocked(&k, &r, now)
	return true, false
}

// fail counts a failure of the key, and adds the key after its delay, or gives it up. AtLeast comes with r,
// the rest of the failure with f.
func (q *Queue[T]) fail(k prepared[T], r request, f failures.Failure) failures.Retry {
	maxDelay := q.takeBackRetry(k, &r)
	delay := func(asked time.Duration) time.Duration { return min(r.delayWith(asked), maxDelay) }
	retry := q.failures.Fail(k.hash, k.key, f, q.config.RateLimiter, delay)
	if retry.GivenUp {
		q.config.RateLimiter.Forget(k.key)
		return retry
	}
	r.After = retry.Delay
	q.addPrepared(&r, k)
	return retry
}

// takeBackRetry takes back the retry of an earlier Fail of the same call, if r is of Fail. It returns how
// long MaxDelay lets the key wait.
func (q *Queue[T]) takeBackRetry(k prepared[T], r *request) (maxDelay time.Duration) {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceToNowLocked()
	s, info := q.findLocked(k.hash, k.key)
	if info == nil || !info.state.isHeld() {
		return dueloop.Never
	}
	d := q.mu.details.At(s)
	if r.isRetry && info.state != processing && d.onlyRetry {
		q.removeLocked(s, info, now)
	}
	if !r.isBounded() {
		return dueloop.Never
	}
	firstEvent := now
	if info.state != processing && d.byEvent { // Otherwise byEvent is that of an earlier hand-out.
		firstEvent = d.addedAt
	}
	return max(0, dueloop.AddSaturated(q.boundLocked(s, info, r, firstEvent), -now))
}
