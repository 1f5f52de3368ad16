package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// addRateLimited asks the limiter if its answer can matter, and adds the key
// (client-go charges it for every add: kubernetes/kubernetes#112325).
//
// The limiter is foreign code: it may be slow, call the queue or panic. So it is asked without the lock, and the key is
// not touched until there is an answer. Those that want to ask meanwhile, for any key, wait for asking, so that many at
// once ask once. If the key was queued in between, the answer is merged as any other add.
func (q *Queue[T]) addRateLimited(k *newKey[T], r *request) {
	q.asking.Lock()
	defer q.asking.Unlock()
	if !q.mustAsk(k, r) {
		return
	}
	asked := *r
	asked.answered = true
	delay := q.config.RateLimiter.When(k.key)
	if r.After <= 0 || delay < r.After {
		asked.After = delay
	}
	now := q.readClock(true)
	q.lockAt(now)
	defer q.unlock()
	q.addLocked(k, &asked, now)
}

// mustAsk reports whether the limiter's answer can matter to k. If not, it adds k without.
func (q *Queue[T]) mustAsk(k *newKey[T], r *request) bool {
	now := q.readClock(q.needsTime(r))
	q.lockAt(now)
	defer q.unlock()
	if q.shuttingDown.Load() {
		return false
	}
	s, e := q.mu.keys.Find(k.hash, k.key)
	if s == keytable.None || q.needsLimiterLocked(s, &e.Value) {
		return true
	}
	unasked := *r
	unasked.askedBefore = true
	q.addLocked(k, &unasked, now)
	return false
}

// needsLimiterLocked reports whether it matters for how long the limiter would make the key at s wait.
func (q *Queue[T]) needsLimiterLocked(s keytable.Slot, it *item) bool {
	switch it.state {
	case queued:
		return false
	case rerun:
		return q.mu.details.At(s).yields
	case waiting, rerunLater:
		return !it.limited
	}
	return true
}

// Forget is that of the limiter. The worker still has to call Done.
func (q *Queue[T]) Forget(item T) { q.config.RateLimiter.Forget(item) }

// NumRequeues is that of the limiter.
func (q *Queue[T]) NumRequeues(item T) int { return q.config.RateLimiter.NumRequeues(item) }
