package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
)

// AddOpts decide when and how urgently keys come. The zero AddOpts mean what Add means: now, with priority 0.
type AddOpts struct {
	// Priority is how urgent the key is: higher priorities come first. If the key is queued, waits, or was added
	// since its hand-out, the higher of the two priorities counts. The priority of the hand-out itself does not.
	Priority int

	// After is how long the key waits. Zero and less mean not at all.
	After time.Duration

	// RateLimited makes the key wait for the limiter's delay, or for After if that is positive and shorter.
	// For a key that a worker holds it is a failure: see "Failures" in the package comment, which also says
	// when the limiter is not asked.
	RateLimited bool

	// AtLeast, with RateLimited, is the shortest time that the key waits, even if After and the limiter say less
	// (only MaxDelay can cut it): for a server that says how long to stay away. A call that fails before that
	// time is the same failure. Another add may bring the key earlier. Without RateLimited, AtLeast has no
	// effect.
	AtLeast time.Duration

	// SetPriority gives the key this Priority even if the key has a higher one.
	SetPriority bool

	// Delay decides how the new time is merged with the time for which the key waits already.
	Delay DelayPolicy

	// MaxDelay bounds how long Latest and Replace can postpone a key: it comes no later than MaxDelay after the
	// first event since its last hand-out. Zero means Config.MaxDelay or, for a rate-limited add, no bound. A
	// negative one means no bound.
	//
	// Every add is an event, except
	//   - AddAfter and AddWithPriority of a key that a worker holds,
	//   - rate-limited adds without a MaxDelay.
	// A key without an event is not bounded. A rate-limited add with a MaxDelay may come before the limiter's
	// delay or AtLeast. But with Latest, a key that already waits for the limiter is not brought forward.
	MaxDelay time.Duration

	// Cause, unless nil, is why the keys are added. It stays with a key that has to wait. Quiet adds and
	// Fail do not interrupt the worker that holds the key. See [Queue.Causes] and [Queue.AddedAgain].
	Cause *workqueue.Cause
}

// DelayPolicy decides what an add means for a key that waits for its time, or will do so when its worker is
// Done.
type DelayPolicy uint8

const (
	// DefaultDelay is Config.Delay.
	DefaultDelay DelayPolicy = iota
	// Earliest makes the key come at the earlier of the two times.
	Earliest
	// Latest makes the key come at the later of the two times. With MaxDelay it is a debounce.
	Latest
	// Replace makes the key come at the new time.
	Replace
)

// request is what an add asks for. Where it is merged with others, After is the whole delay, with the
// limiter's answer in it.
type request struct {
	AddOpts
	// byWorker makes the add one by the key's worker, if a worker holds the key. See AddOpts.MaxDelay.
	byWorker bool
	// keepPriority: a held key keeps the priority of its hand-out, and Priority is ignored for it. Only
	// AddAfter, AddRateLimited and Fail have it.
	keepPriority bool
	// isRetry: Fail makes the add, so a later Fail may take it back.
	isRetry bool
	// isFailure: it is a rate-limited add of a held key that was counted as a failure. If a worker got the key
	// while the limiter was asked, it was not.
	isFailure bool
}

// complete gives r what its AddOpts leave to Config. If Delay is DefaultDelay in both, it means Earliest.
func (q *Queue[T]) complete(r *request) {
	switch {
	case r.Delay == DefaultDelay:
		r.Delay = q.config.Delay
	case r.Delay > Replace:
		panic("priorityqueue: AddOpts.Delay is not a DelayPolicy")
	}
	if r.hasCause() && r.Cause.Time.IsZero() {
		timed := *r.Cause
		timed.Time = q.config.Clock.Now()
		r.Cause = &timed
	}
	if r.MaxDelay == 0 && !r.RateLimited {
		r.MaxDelay = q.config.MaxDelay
	}
}

// hasCause reports whether Cause says more than Quiet.
func (r *request) hasCause() bool {
	return r.Cause != nil && (r.Cause.Reason != "" || r.Cause.TraceParent != "")
}

// isCounted reports whether Stats.Retries counts r. AddAfter, which keeps priorities, does without a delay.
func (r *request) isCounted() bool { return r.After > 0 || r.RateLimited || r.keepPriority }

// isBounded reports whether MaxDelay bounds the time of a key that r adds. It does with Latest and Replace.
func (r *request) isBounded() bool { return r.MaxDelay > 0 && r.Delay >= Latest }

// isEvent reports whether MaxDelay counts from r. See AddOpts.MaxDelay.
func (r *request) isEvent(held bool) bool {
	if r.RateLimited {
		return r.MaxDelay > 0
	}
	return !r.byWorker || !held
}

// askedTime returns when the key is to come by these options alone.
func (r *request) askedTime(now time.Duration) time.Duration {
	if r.After <= 0 {
		return atOnce
	}
	return dueloop.AddSaturated(now, r.After)
}

// mergeTimes returns the new time of a key that was due at dueAt.
func (r *request) mergeTimes(dueAt, now time.Duration) time.Duration {
	askedTime := r.askedTime(now)
	switch r.Delay {
	case Latest:
		return max(dueAt, askedTime)
	case Replace:
		return askedTime
	default: // Earliest
		return min(dueAt, askedTime)
	}
}

// mergePriorities returns the new priority of a key with oldPriority, for which r asks for askedPriority.
func (r *request) mergePriorities(oldPriority, askedPriority int) int {
	if r.SetPriority {
		return askedPriority
	}
	return max(oldPriority, askedPriority)
}

// delayWith returns how long the key waits if the limiter says limiterDelay.
func (r *request) delayWith(limiterDelay time.Duration) time.Duration {
	if r.After > 0 {
		limiterDelay = min(limiterDelay, r.After)
	}
	return max(limiterDelay, r.AtLeast, 0)
}
