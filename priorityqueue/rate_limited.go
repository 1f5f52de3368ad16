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
// The limiter is foreign code: it may be slow, call the queue or panic. So it is asked without the queue's
// lock, and the key is not touched until there is an answer. If the key was added in between, the answer is
// merged as any other add. The limiter and the clock run under one lock, asking, which only rate-limited adds
// take: of many adds at once one asks, and a slow limiter delays those of all keys. (client-go asks for each:
// kubernetes/kubernetes#112325.)
//
// A rate-limited add of a key that a worker holds says that the worker has failed, as Fail does.

// AddRateLimited adds item after the limiter's delay: see [AddOpts].RateLimited. A key that a worker holds
// keeps the priority of its hand-out, any other gets priority 0.
func (q *Queue[T]) AddRateLimited(item T) {
	r := q.newRequest(AddOpts{RateLimited: true})
	r.keepPriority = true
	q.add(item, &r)
}

// Fail is that of [workqueue.ExtendedRateLimiting]. The key keeps the priority of its hand-out. What fails
// again for the same hand-out, with Fail or by a rate-limited add, is the same failure, unless the key was
// given up or forgotten in between.
func (q *Queue[T]) Fail(_ context.Context, key T, f workqueue.Failure) (workqueue.Retry, error) {
	r := q.newRequest(AddOpts{RateLimited: true, AtLeast: f.AtLeast})
	r.keepPriority = true
	k := q.newKey(key)
	q.asking.Lock()
	defer q.asking.Unlock()
	return workqueue.Retry(q.fail(&k, &r, failures.Failure(f))), nil
}

// Failures is that of [workqueue.ExtendedRateLimiting].
func (q *Queue[T]) Failures(key T) (n int, left time.Duration) { return q.failures.Of(key) }

// Forget is that of the limiter, and ends the queue's own count. The worker still has to call Done.
func (q *Queue[T]) Forget(item T) {
	q.failures.Forget(item)
	q.config.RateLimiter.Forget(item)
}

// NumRequeues is that of the limiter.
func (q *Queue[T]) NumRequeues(item T) int { return q.config.RateLimiter.NumRequeues(item) }

// addRateLimited adds the key after the limiter's delay, which it asks for if that matters.
func (q *Queue[T]) addRateLimited(k *newKey[T], r *request) {
	q.asking.Lock()
	defer q.asking.Unlock()
	switch st, settled := q.addUnasked(k, r); {
	case settled:
	case st.isHeld():
		q.fail(k, r, failures.Failure{AtLeast: r.AtLeast})
	default:
		q.addAfter(k, r, r.limit(q.config.RateLimiter.When(k.key)))
	}
}

// addUnasked adds the key if the limiter's answer does not matter, as it does after shutdown. Then all is
// settled. Otherwise it returns the key's state.
func (q *Queue[T]) addUnasked(k *newKey[T], r *request) (st state, settled bool) {
	now := q.loop.Now()
	q.lockAndAdvance(now)
	defer q.unlock()
	s, it := q.findLocked(k.hash, k.key)
	switch {
	case q.shuttingDown.Load():
		return absent, true
	case it == nil:
		return absent, false
	case it.state == queued:
		q.addLocked(k, r, now)
		return queued, true
	case it.state == waiting && it.has(limited):
		unasked := *r
		unasked.After = r.limit(max(now, q.askedTimeLocked(s)) - now) // That time includes the limiter's delay.
		q.addLocked(k, &unasked, now)
		return waiting, true
	}
	return it.state, false
}

// fail counts a failure of the key, and adds the key after its delay, or gives it up. If the limiter panics,
// nothing is counted or added.
func (q *Queue[T]) fail(k *newKey[T], r *request, f failures.Failure) (retry failures.Retry) {
	same, maxDelay := q.lookAtFailure(k, r)
	if same {
		retry.Same = true
		retry.Attempt, retry.Delay = q.failures.Of(k.key)
	}
	switch {
	case retry.Attempt == 0: // A new failure, or the count was forgotten since.
		retry = q.failures.Judge(k.key, f)
	case f.EndsRetries(retry.Attempt):
		q.failures.Forget(k.key)
		retry.GivenUp, retry.Delay = true, 0
	}
	if retry.GivenUp {
		q.config.RateLimiter.Forget(k.key)
		return retry
	}
	delay := retry.Delay
	if !retry.Same {
		delay = failures.Ask(q.config.RateLimiter, k.key)
	}
	delay = min(r.limit(delay), maxDelay)
	if !retry.Same || delay != retry.Delay {
		retry.Delay = delay
		q.failures.Count(k.key, retry)
	}
	q.addAfter(k, r, delay)
	return retry
}

// lookAtFailure reports whether the key has failed since its hand-out, and how long MaxDelay lets it wait.
func (q *Queue[T]) lookAtFailure(k *newKey[T], r *request) (same bool, maxDelay time.Duration) {
	now := q.loop.Now()
	q.lockAndAdvance(now)
	defer q.unlock()
	s, it := q.findLocked(k.hash, k.key)
	if it == nil || !it.state.isHeld() {
		return false, dueloop.Never
	}
	if !r.isBounded() || it.has(limited) && r.Delay == Latest { // The limiter's time is not cut.
		return it.has(failed), dueloop.Never
	}
	first := now
	if it.state != processing && it.addedBy == addedByEvent {
		first = q.mu.details.At(s).addedAt
	}
	return it.has(failed), max(0, dueloop.AddSaturated(first, r.MaxDelay)-now)
}

// addAfter adds the key after the delay that the limiter and r ask for.
func (q *Queue[T]) addAfter(k *newKey[T], r *request, delay time.Duration) {
	delayed := *r
	delayed.After = delay
	now := q.loop.Now()
	q.lockAndAdvance(now)
	defer q.unlock()
	q.addLocked(k, &delayed, now)
}
