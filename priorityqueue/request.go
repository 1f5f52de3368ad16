package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// request is what an add asks for, and how it is merged with what was asked for the key before.
type request struct {
	AddOpts // Delay is not DefaultDelay.
	// byWorker makes the add one by the key's worker, if a worker holds the key. See AddOpts.MaxDelay.
	byWorker bool
	// keepPriority means the priority of a key that a worker holds, instead of Priority.
	keepPriority bool
	// answered reports that After already includes the limiter's delay.
	answered bool
	// askedBefore reports that the limiter was asked for an earlier add: its delay is in the key's present time.
	askedBefore bool
	// retry makes the add count in Stats.Retries.
	retry bool
}

func (q *Queue[T]) newRequest(o AddOpts) request {
	o.check()
	if o.Delay == DefaultDelay {
		o.Delay = q.config.Delay
	}
	if o.Cause != nil && o.Cause.Time.IsZero() {
		timed := *o.Cause
		timed.Time = q.config.Clock.Now()
		o.Cause = &timed
	}
	r := request{AddOpts: o, retry: o.After > 0 || o.RateLimited}
	if r.MaxDelay == 0 {
		r.byWorker = r.RateLimited
		if !r.RateLimited {
			r.MaxDelay = q.config.MaxDelay
		}
	}
	return r
}

// isQuiet reports whether the add does not interrupt the worker that holds the key.
func (r *request) isQuiet() bool { return r.Cause != nil && r.Cause.Quiet }

// needsTime reports whether r depends on the time: its own, or that of the first add if a later one may put off
// the key.
func (q *Queue[T]) needsTime(r *request) bool {
	return r.After > 0 || r.Delay == RespectBackoff || r.MaxDelay > 0 && r.Delay.postpones()
}

// time returns when the key is to come, whatever was asked before.
func (r *request) time(now time.Duration) time.Duration {
	if r.After <= 0 {
		return unknown
	}
	return dueloop.AddSaturated(now, r.After)
}

// merge returns when a key is to come that was to come at the time before. limited reports whether the limiter was asked
// for it before.
func (r *request) merge(before time.Duration, limited bool, now time.Duration) time.Duration {
	at := r.time(now)
	if r.askedBefore { // The limiter's delay is in before, and After can only shorten it.
		if at == unknown {
			at = before
		}
		at = min(before, at)
	}
	switch {
	case r.Delay == Latest:
		return max(before, at)
	case r.Delay == Replace:
		return at
	case r.Delay == RespectBackoff && limited:
		return before
	}
	return min(before, at)
}

// marksLimited returns item.limited after the add. It was limited before.
func (r *request) marksLimited(limited bool) bool {
	return r.answered || limited && (r.Delay != Replace || r.RateLimited)
}

// mergePriority returns the priority of a key that had the priority before.
func (r *request) mergePriority(before, asked int) int {
	if r.SetPriority {
		return asked
	}
	return max(before, asked)
}

// mergePriorityLocked merges the priority of an add into that of the key at s, which is queued or in state rerun.
func (q *Queue[T]) mergePriorityLocked(s keytable.Slot, it *item, priority *int, asked int, r *request, now time.Duration) {
	before := *priority
	after := r.mergePriority(before, asked)
	if after == before {
		return
	}
	*priority = after
	if q.observer != nil {
		q.mu.depths.add(before, -1)
		q.mu.depths.add(after, 1)
	}
	if it.line != keytable.None {
		q.changeLineLocked(s, it, before, after, now)
	}
}

// noteAddedLocked notes when the key was first added since its last hand-out. The first event replaces an add by the
// worker, because MaxDelay counts from it.
func (q *Queue[T]) noteAddedLocked(s keytable.Slot, it *item, r *request, now time.Duration) {
	by := addedByEvent
	if r.byWorker && (r.RateLimited || it.state.isHeld()) {
		by = addedByWorker
	}
	if now != unknown && it.added < by {
		it.added = by
		q.mu.details.At(s).added = now
	}
}

// boundLocked returns at, or the bound that MaxDelay or MinInterval set. The key at s may be in due.
func (q *Queue[T]) boundLocked(s keytable.Slot, it *item, r *request, at time.Duration) time.Duration {
	if r.MaxDelay > 0 && r.Delay.postpones() && it.added == addedByEvent {
		latest := dueloop.AddSaturated(q.mu.details.At(s).added, r.MaxDelay)
		if it.limited && r.Delay == Latest && (it.state == waiting || it.state == rerunLater) {
			latest = max(latest, q.dueAtLocked(s)) // The limiter's time is not cut.
		}
		at = min(at, latest)
	}
	if q.config.MinInterval > 0 {
		at = max(at, q.nextStartLocked(s))
	}
	return at
}
