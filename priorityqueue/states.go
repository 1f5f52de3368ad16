package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// The package comment has a picture of the states and of what moves a key from one to the other. An add
// enters at addLocked, a due key at makeReadyLocked, and Done at becomeQueuedLocked or, for a key on hold, at
// joinLineLocked:
//
//	addLocked            merges the add with what is known of the key
//	  planLocked         applies MaxDelay and MinInterval to the time
//	    scheduleLocked   lets the key wait in due, or makes it ready
//	      makeReadyLocked          makes the key queued or, if a worker holds it, rerun
//	        joinLineLocked         gives the key its place in a line
//	        becomeQueuedLocked     makes it queued
//	          moveLineLocked       puts the line into a heap, if the key is the first

// state says where a key is. A key that is queued or in state rerun is ready: it needs no more time.
type state uint8

const (
	absent     state = iota // of a slot that is new
	queued                  // in a line, until a worker gets it
	waiting                 // in due, until its time comes
	processing              // held by a worker, and not added since
	rerun                   // held by a worker, and queued at its Done
	rerunLater              // held by a worker, and in due: rerun at its time, waiting if Done comes first
	resting                 // in resting: only remembered, until its MinInterval is over
)

func (s state) isHeld() bool { return s == processing || s == rerun || s == rerunLater }

// wasAddedWhileHeld reports whether the key was added since its hand-out.
func (s state) wasAddedWhileHeld() bool { return s == rerun || s == rerunLater }

func (s state) isInDue() bool { return s == waiting || s == rerunLater }

// keyInfo is what the queue knows of every key. details is written by adds that have read the clock, by adds
// of held keys and, with Aging or MinInterval, when a key joins a line or is handed out. A field has a
// meaning in the states that are listed here. In others line is None, byLimiter is false, the rest is stale.
//
//	field                  states                       meaning
//	priority               queued, waiting              that of the next hand-out
//	                       held                         that with which the key was handed out
//	line                   queued; rerun off hold       the line in which the key stands
//	byLimiter              in due                       the limiter was asked for this wait
//	onHold                 held                         PutOnHold was called
//	noted                  all but resting              there is a note: causes, or a channel of AddedAgain
//	details.nextPriority   rerun, rerunLater            the priority of the next hand-out
//	details.onlyRetry      rerun, rerunLater            all adds since the hand-out were by Fail
//	details.failed         rerun, rerunLater            a rate-limited add since then counted a failure
//	details.quiet          rerun, rerunLater            all adds since the hand-out were quiet
//	details.addedAt        rerun, rerunLater, waiting,  when MaxDelay begins to count: at the first event since
//	and byEvent            if an add read the clock     the hand-out (byEvent) or, until then, the first add
//	details.startedAt      all, with MinInterval        when the key was last handed out, or longAgo
//	details.placedOrAsked  like line, with Aging        when the key took its place there: see placedAt
//	                       in due, with MinInterval     when the key would come without it: see askedAt
//
// placedOrAsked is one field, because the memory for two would cost 3 % of a cycle of many keys.
type keyInfo struct {
	priority         int
	line             keytable.Slot
	state            state
	byLimiter, noted bool
	onHold           bool
}

type details struct {
	nextPriority                      int
	addedAt, startedAt, placedOrAsked time.Duration
	onlyRetry, failed, quiet, byEvent bool
}

func (d *details) placedAt() *time.Duration { return &d.placedOrAsked }
func (d *details) askedAt() *time.Duration  { return &d.placedOrAsked }

// nextPriorityLocked returns where the priority of the next hand-out is kept.
func (q *Queue[T]) nextPriorityLocked(s keytable.Slot, info *keyInfo) *int {
	if info.state.isHeld() {
		return &q.mu.details.At(s).nextPriority
	}
	return &info.priority
}

// enterQueueLocked takes the key at s, which is absent or rests, out of resting and into its group.
func (q *Queue[T]) enterQueueLocked(s keytable.Slot, info *keyInfo, k *prepared[T]) {
	if info.state == resting {
		q.mu.lists.Remove(&q.mu.resting, s)
		info.state = absent
	} else if q.config.MinInterval > 0 {
		q.mu.details.At(s).startedAt = longAgo
	}
	if q.config.Group != nil {
		q.joinGroupLocked(s, k)
	}
}

// makeReadyLocked makes the key at s, which is in no line and not in due, queued. If a worker holds it, its
// state becomes rerun: it is queued at its Done. It takes its place now or, if it is on hold, at that Done.
// at is now, or when its time came.
func (q *Queue[T]) makeReadyLocked(s keytable.Slot, info *keyInfo, at time.Duration) {
	priority := *q.nextPriorityLocked(s, info)
	q.mu.adds++
	if q.observer != nil {
		q.observer.Added(s, at)
	}
	q.countDepthLocked(info, priority, 1)
	if !info.onHold {
		q.joinLineLocked(s, info, priority, at)
	}
	if !info.state.isHeld() {
		q.becomeQueuedLocked(s, info)
		return
	}
	info.state, info.byLimiter = rerun, false
	q.mu.reruns++
	if info.onHold {
		q.mu.rerunsOnHold++
	}
	q.interruptLocked(s, info)
}

// leaveQueueLocked takes the key at s, which is in no line and not in due, out of the queue. With MinInterval
// the key may rest.
func (q *Queue[T]) leaveQueueLocked(s keytable.Slot, info *keyInfo, now time.Duration) {
	if info.noted {
		q.mu.notes.Remove(s)
	}
	if q.config.Group != nil {
		q.leaveGroupLocked(s)
	}
	if q.config.MinInterval > 0 && !q.shuttingDown.Load() && q.nextStartLocked(s, now) > now {
		*info = keyInfo{state: resting}
		q.mu.lists.Append(&q.mu.resting, s)
		return
	}
	q.freeLocked(s)
}

// freeLocked gives back the slot s, whose key is out of everything else.
func (q *Queue[T]) freeLocked(s keytable.Slot) {
	q.mu.keys.Delete(s)
	if q.mu.keys.HasMemory(s) {
		return
	}
	q.mu.details.Release(s)
	q.mu.lists.Release(s)
	q.mu.groupOf.Release(s)
	q.mu.due.Release(s)
	if q.observer != nil {
		q.observer.Release(s)
	}
}
