package priorityqueue

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
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
// A rate-limited add of a key that a worker holds says that the worker has failed, as Fail does. But somebody
// else may have made it, for each of many events. So only the first one of a hand-out may count, and no Fail
// takes it back. Both ways meet in fail, when the key's handOut is known.

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
	k := q.prepare(key)
	q.asking.Lock()
	defer q.asking.Unlock()
	return workqueue.Retry(q.fail(k, r, failures.Failure(f), q.takeBackRetry(k, &r))), nil
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
	switch h, settled := q.addWithoutLimiter(k, &r); {
	case settled:
	case h.isHeld:
		q.fail(k, r, failures.Failure{}, h)
	default:
		r.After = r.delayWith(q.config.RateLimiter.When(k.key))
		q.addPrepared(&r, k)
	}
}

// addWithoutLimiter adds the key if the limiter's answer cannot matter. It returns settled if so, and after
// shutdown. Otherwise it returns the key's handOut.
func (q *Queue[T]) addWithoutLimiter(k prepared[T], r *request) (h handOut, settled bool) {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceToNowLocked()
	s, info := q.findLocked(k.hash, k.key)
	switch {
	case q.shuttingDown.Load(): // No add has an effect.
	case info != nil && info.state == queued: // It comes anyway. Its priority may change.
	case info != nil && info.state == waiting && info.byLimiter:
		// The limiter's delay is in the key's time, unless an add has brought that forward. The time can be past
		// if many keys are due.
		r.After = r.delayWith(dueloop.AddSaturated(max(now, q.dueWithoutIntervalLocked(s)), -now))
	default:
		return q.handOutLocked(s, info, r, now), false
	}
	q.addLocked(&k, r, now)
	return h, true
}

// takeBackRetry takes back the retry of an earlier Fail of the same hand-out, or one that has come due during
// it, and returns the hand-out.
func (q *Queue[T]) takeBackRetry(k prepared[T], r *request) handOut {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceToNowLocked()
	s, info := q.findLocked(k.hash, k.key)
	if info != nil && info.state.wasAddedWhileHeld() && q.mu.details.At(s).onlyRetry {
		q.removeLocked(s, info, now)
	}
	return q.handOutLocked(s, info, r, now)
}

// handOut is what a failure of a key has to know of the key's hand-out.
type handOut struct {
	isHeld    bool
	hasFailed bool          // A rate-limited add has been its failure. What comes after it is the same failure.
	maxDelay  time.Duration // how long MaxDelay lets the key wait
}

// handOutLocked returns the hand-out of the key at s, for an add r. Info is nil for a key that is not in the
// queue.
func (q *Queue[T]) handOutLocked(s keytable.Slot, info *keyInfo, r *request, now time.Duration) handOut {
	h := handOut{maxDelay: dueloop.Never}
	if info == nil || !info.state.isHeld() {
		return h
	}
	h.isHeld = true
	firstEvent := now
	if info.state.wasAddedWhileHeld() {
		d := q.mu.details.At(s)
		h.hasFailed = d.failed
		if d.byEvent {
			firstEvent = d.addedAt
		}
	}
	if r.isBounded() {
		h.maxDelay = max(0, dueloop.AddSaturated(q.boundLocked(s, info, r, firstEvent), -now))
	}
	return h
}

// fail counts a failure of the key, and adds the key after its delay, or gives it up.
func (q *Queue[T]) fail(k prepared[T], r request, f failures.Failure, h handOut) failures.Retry {
	retry := q.failures.Judge(k.hash, k.key, f, q.config.RateLimiter, h.hasFailed)
	if retry.GivenUp {
		q.config.RateLimiter.Forget(k.key)
		return retry
	}
	retry.Delay = min(r.delayWith(retry.Delay), h.maxDelay)
	q.failures.Record(k.hash, k.key, retry, f.Err)
	r.After, r.isFailure = retry.Delay, !r.isRetry && !retry.Same
	q.addPrepared(&r, k)
	return retry
}
