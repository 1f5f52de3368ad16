package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// AddRateLimited adds item after the delay that the limiter says. A key that a worker holds keeps the
// priority with which it was handed out; any other is added with priority 0. The limiter is asked only if its
// answer can matter, so any number of AddRateLimited of a waiting key count as one failure. After shutdown
// AddRateLimited does nothing.
func (q *Queue[T]) AddRateLimited(item T) {
	q.add(item, &request{AddOpts: AddOpts{RateLimited: true}, keepPriority: true, retry: true})
}

// Forget makes the limiter forget the failures of item, whether it has succeeded or is given up. The worker
// still has to call Done.
func (q *Queue[T]) Forget(item T) { q.limiter.Forget(item) }

// NumRequeues returns how many failures of item the limiter has counted since it was forgotten.
func (q *Queue[T]) NumRequeues(item T) int { return q.limiter.NumRequeues(item) }

// addRateLimited asks the limiter if its answer can matter, and adds the key
// (client-go charges it for every add: kubernetes/kubernetes#112325).
//
// The limiter is not ours, and may be slow, call the queue or panic. So it is asked without the lock, and
// the key is not touched until there is an answer. In between other adds see the key as it was; those that
// want to ask for it, or for any other, wait for asking, so that many at once ask once. The answer may be
// of no use when it comes, because the key was made ready meanwhile. Then it is merged as any other add.
func (q *Queue[T]) addRateLimited(k *newKey[T], r *request) {
	q.asking.Lock()
	defer q.asking.Unlock()
	if !q.mustAsk(k, r) {
		return
	}
	asked := *r
	asked.answered = true
	delay := q.limiter.When(k.key)
	if r.After <= 0 || delay < r.After {
		asked.After = delay
	}
	now := q.lock(true)
	defer q.unlock()
	q.addLocked(k, &asked, now)
}

// mustAsk reports whether the limiter's answer can matter to k. If not, it adds k without.
func (q *Queue[T]) mustAsk(k *newKey[T], r *request) bool {
	now := q.lock(r.needsTime())
	defer q.unlock()
	if q.shuttingDown.Load() {
		return false
	}
	s, e := q.keys.Find(k.hash, k.key)
	if s == keytable.None || e.Value.needsAnswer() {
		return true
	}
	unasked := *r
	unasked.unanswered = true
	q.addLocked(k, &unasked, now)
	return false
}

// needsAnswer reports whether it matters for how long the limiter would make the key wait.
func (it *item) needsAnswer() bool {
	switch st := it.state; {
	case st&ready != 0:
		return false
	case st&running != 0:
		return st&again == 0 || st&yields != 0 || st&(timed|backoff) == timed
	}
	return it.state&backoff == 0
}
