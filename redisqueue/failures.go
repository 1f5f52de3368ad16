package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
)

// AddRateLimited counts a failure of item and adds it after the delay that Backoff gives. While the delay of
// the last failure has not passed, another failure, on whichever replica, is the same one: it is not counted,
// and item comes at the end of that delay. It does not block. After shutdown it does nothing, as Add.
func (q *Queue[T]) AddRateLimited(item T) {
	f := newFailure(workqueue.Failure{})
	q.addLater(item, func(encoded string) *op { return q.newFailLocked(item, encoded, f, nil) })
}

// Fail says that the call for item, which a worker of this replica holds, has failed; see
// workqueue.ExtendedRateLimiting. The server does all of it in one operation, for all replicas: it counts the
// failure unless the delay of the last one has not passed, and adds item after the delay that Backoff gives,
// or gives it up and keeps it with its error; see GivenUpKeys.
//
// Fail waits for the server's answer until ctx ends, but for no longer than a second. Then it returns an
// error, and what this replica expects: the count of the hand-out and this failure, and no Delay. The failure
// is counted and item added, or given up, when the server is back, unless the lease has ended there. After
// shutdown Fail works as long as the worker holds item, which another replica then gets.
//
// If the lease of item is lost, Fail changes nothing and returns [leasing.ErrLost].
func (q *Queue[T]) Fail(ctx context.Context, item T, f workqueue.Failure) (workqueue.Retry, error) {
	encoded, s := q.locate(item)
	retry := predict(q.failuresOfHeld(item), f) // what Fail returns without an answer
	sent, result := newFailure(f), make(chan error, 1)
	var answered workqueue.Retry // read only after result
	// The server must get the failure even if ctx has already ended: otherwise item would not be retried.
	err := q.answer(item, encoded, s, func(encoded string) *op {
		return q.newFailLocked(item, encoded, sent, func(a opResult, err error) {
			answered = workqueue.Retry{Attempt: a.n, Delay: a.left, Same: a.same, GivenUp: a.givenUp}
			result <- err
		})
	})
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err == nil {
		err = q.wait(ctx, result)
	}
	switch {
	case err == nil:
		retry = answered
	case errors.Is(err, leasing.ErrLost):
		retry.GivenUp = false // Whoever has the key now decides that.
	}
	return retry, err
}

// predict returns what the server will make of a failure, as far as this replica knows of those before.
func predict(known workqueue.Failures, f workqueue.Failure) workqueue.Retry {
	r := workqueue.Retry{Attempt: known.Count + 1, Same: known.Left > 0}
	if r.Same {
		r.Attempt = max(known.Count, 1)
	}
	isOld := f.RetryFor > 0 && !known.Since.IsZero() && time.Since(known.Since) > f.RetryFor
	r.GivenUp = f.Terminal || f.MaxRetries != 0 && r.Attempt > f.MaxRetries || isOld
	return r
}

// failure is a failure as fail in failures.lua reads it.
type failure struct{ details, reason string }

// newFailure runs without a lock: the error's text is foreign code.
func newFailure(f workqueue.Failure) failure {
	return failure{reason: reasonOf(f.Err), details: fmt.Sprintf("%d %d %d %t ",
		ceilMicros(f.AtLeast), f.MaxRetries, ceilMicros(f.RetryFor), f.Terminal)}
}

// newFailLocked returns the operation of a failure. answered, unless nil, is called with the server's answer,
// under the lock.
func (q *Queue[T]) newFailLocked(item T, encoded string, f failure, answered func(opResult, error)) *op {
	held := q.mu.held[item]
	o := newOp(codeFail, fmt.Sprintf("%016d%s%s%s", len(encoded), encoded, f.details, f.reason))
	o.onResult = func(a opResult, err error) {
		if err == nil && a.late {
			err = leasing.ErrLost
		}
		if err == nil && !a.givenUp {
			q.mu.totals.stats.Retries++
		}
		if err == nil && held != nil {
			if held.failures == 0 {
				held.failingSince = time.Now()
			}
			held.failures, held.retryAt, held.err = a.n, time.Now().Add(a.left), f.reason
			if a.givenUp {
				held.failures = 0
			}
		}
		if answered != nil {
			answered(a, err)
		}
	}
	return o
}

// maxReason is how many bytes of an error are kept.
const maxReason = 1000

// reasonOf returns the text of an error as the server keeps it.
func reasonOf(err error) string {
	if err == nil {
		return "no error"
	}
	reason := fmt.Sprint(err) // err.Error() may panic, for instance because err is a nil pointer.
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return reason
}

// Failures returns what is known of the failures of item on all replicas. For a key that a worker of this
// replica holds it knows that from the hand-out, which brought it along, and from Fail. For any other key it
// asks the server, after what was called before, for up to a second, and returns zero if that does not
// answer, and after shutdown. Since and Err of other keys are in SnapshotKey.
func (q *Queue[T]) Failures(item T) (f workqueue.Failures) {
	if q.holdOf(item) != nil {
		return q.failuresOfHeld(item)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	encoded, _ := q.locate(item)
	results, _ := q.ask(ctx, codeNumRequeues, encoded)
	return workqueue.Failures{Count: results[0].n, Left: results[0].left}
}

// NumRequeues returns at once how often item has failed since it was forgotten. For a key held here, that is
// the count of the hand-out and the answers since. For any other it is the server's last answer, 0 at first;
// a call asks again in the background, at most once a second.
func (q *Queue[T]) NumRequeues(item T) int {
	encoded, s := q.locate(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.mu.held[item]; h != nil {
		return h.failures
	}
	q.noteQuestionLocked()
	r := q.mu.latest.requeues[item]
	if r == nil {
		r = &requeues{}
		q.mu.latest.requeues[item] = r
	}
	if r.asked = time.Now(); !r.asking && !q.mu.ending.over && r.asked.Sub(r.answered) >= latestInterval {
		o := newOp(codeNumRequeues, encoded)
		o.onResult = func(a opResult, err error) {
			r.asking, r.answered = false, time.Now()
			if err == nil {
				r.n = a.n
			}
		}
		r.asking = true
		s.putLocked(o)
	}
	return r.n
}

// FailingKeys returns up to limit keys of the whole queue whose failures the server counts, those that have
// failed most often first. It asks the server for up to a second, and returns what it has got by then.
func (q *Queue[T]) FailingKeys(limit int) []workqueue.KeySnapshot[T] {
	return q.snapshots(limit, ListFailing)[0]
}

// failuresOfHeld is Failures of a key that a worker of this replica holds, and zero for any other.
func (q *Queue[T]) failuresOfHeld(item T) (f workqueue.Failures) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.mu.held[item]; h != nil {
		f = h.knownFailures()
	}
	return f
}

// knownFailures returns the failures of a key that this replica holds.
func (h *handedOut) knownFailures() (f workqueue.Failures) {
	if h.failures > 0 {
		left := max(0, time.Until(h.retryAt))
		f = workqueue.Failures{Count: h.failures, Left: left, Since: h.failingSince, Err: h.err}
	}
	return f
}

// forgetHeldLocked forgets the failures of a key that a worker of this replica holds.
func (q *Queue[T]) forgetHeldLocked(item T) {
	if h := q.mu.held[item]; h != nil {
		h.failures = 0
	}
}

// Forget forgets the failures of item, and that it was given up: the next failure counts as the first. It
// does not block. After shutdown it does nothing, as Add.
//
// Of a key that a worker of this replica holds, Forget is what that worker says: after the lease is lost, it
// does nothing.
func (q *Queue[T]) Forget(item T) { q.forgetAs(codeForget, item) }

func (q *Queue[T]) forgetAs(c code, item T) {
	encoded, s := q.locate(item)
	_ = q.answer(item, encoded, s, func(encoded string) *op {
		q.forgetHeldLocked(item)
		return newOp(c, encoded)
	})
}
