package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// A key in the queue is in one of these states:
//
//	              Add                 Get                    Done
//	(absent) ────────────▶ queued ───────────▶ processing ──────────▶ (absent)
//	    │                  ▲    ▲               │      │          or resting, with MinInterval
//	    │ AddAfter    time │    │ Done      Add │      │ AddAfter
//	    ▼                  │    │               ▼      ▼
//	 waiting ──────────────┘    └───────────── rerun ◀──── rerunLater
//	    ▲                                           time    │
//	    └───────────────────────── Done ────────────────────┘
//
// A worker holds the key in the states processing, rerun and rerunLater.
type state uint8

const (
	absent     state = iota // of a slot that is new
	queued                  // in a line, until a worker gets it
	waiting                 // in due, until its time comes
	processing              // held by a worker, and not added since
	rerun                   // held by a worker, and queued when that is Done
	rerunLater              // held by a worker, and in due: is queued or waits when the worker is Done
	resting                 // in resting: only remembered, until its MinInterval is over
)

func (s state) isHeld() bool { return s == processing || s == rerun || s == rerunLater }

// item is what the queue knows of every key. details, the last five rows, are about keys that have waited or
// are added while held and, with Aging or MinInterval, about all. A field has a meaning in the states that
// are listed here, where "again" stands for rerun and rerunLater, and "held" for these and processing. In
// other states line is None, limited is false, and the others are stale.
//
//	field          states                       meaning
//	priority       queued, waiting              that of the next hand-out
//	               held                         that with which the key was handed out
//	line           queued; rerun by PlaceOfAdd  the line in which the key stands
//	limited        waiting, rerunLater          the limiter was asked for this wait
//	failed         held                         a failure was counted since the hand-out
//	quiet          again                        all adds since the hand-out were quiet: they do not interrupt
//	noted          all but resting              there is a note: causes, or somebody waits for the next add
//	addedBy        queued, waiting, again       whose add addedAt is about
//	addedAt        the same                     of the first event since the last hand-out; without, of an add
//	rerunPriority  again                        the priority of the next hand-out
//	placedAt       like line, with Aging        when the key took its place there
//	startedAt      all, with MinInterval        when the key was last handed out, or longAgo
//	askedTime      waiting, rerunLater, with    when the key is to come: it is in due with this time, or with
//	               MinInterval                  the end of its interval if that is later
type item struct {
	priority int
	line     keytable.Slot
	state    state
	flags
	addedBy adder
}

type details struct {
	rerunPriority                           int
	placedAt, addedAt, startedAt, askedTime time.Duration
}

// flags are several of limited, failed, quiet and noted.
type flags uint8

const (
	limited flags = 1 << iota
	failed
	quiet
	noted
)

func (f flags) has(one flags) bool { return f&one != 0 }

func (f *flags) set(one flags, on bool) {
	if *f &^= one; on {
		*f |= one
	}
}

// adder says whose add addedAt is the time of. A higher one replaces a lower one: MaxDelay bounds events.
type adder uint8

const (
	addedUnknown adder = iota
	addedByWorker
	addedByEvent
)

// enterLocked takes the key at s, which is absent or rests, out of resting and into its group.
func (q *Queue[T]) enterLocked(s keytable.Slot, it *item, k *newKey[T]) {
	if it.state == resting {
		q.endRestLocked(s)
		it.state = absent
	} else if q.config.MinInterval > 0 {
		q.mu.details.At(s).startedAt = longAgo
	}
	if q.config.Group != nil {
		q.joinGroupLocked(s, k)
	}
}

// enqueueLocked queues the key at s, which no worker holds, at the end of the line of its priority.
func (q *Queue[T]) enqueueLocked(s keytable.Slot, it *item, now time.Duration) {
	q.countAddLocked(s, it.priority, now)
	q.joinLineLocked(s, it, it.priority, now)
	q.becomeQueuedLocked(s, it)
}

// rerunNowLocked makes the held key at s, which is not in due, come again when its worker is Done.
func (q *Queue[T]) rerunNowLocked(s keytable.Slot, it *item, now time.Duration) {
	it.state = rerun
	it.set(limited, false)
	q.mu.reruns++
	priority := q.mu.details.At(s).rerunPriority
	q.countAddLocked(s, priority, now)
	if q.config.PlaceOfAdd {
		q.joinLineLocked(s, it, priority, now)
	}
}

// cancelRerunLocked makes the key at s, in state rerun or rerunLater, one that is processing and does not
// come again.
func (q *Queue[T]) cancelRerunLocked(s keytable.Slot, it *item) {
	if it.state == rerunLater {
		q.mu.due.Remove(s)
	} else {
		q.mu.reruns--
		q.mu.depths.add(q.mu.details.At(s).rerunPriority, -1)
		if it.line != keytable.None {
			q.leaveLineLocked(s, it)
		}
	}
	it.state = processing
	it.set(limited, false)
}

// deleteLocked forgets the key at s, which is in no line and not in due: at once, or when its MinInterval is
// over.
func (q *Queue[T]) deleteLocked(s keytable.Slot, it *item, now time.Duration) {
	if it.has(noted) {
		q.mu.notes.Remove(s)
	}
	if q.config.Group != nil {
		q.leaveGroupLocked(s)
	}
	if q.config.MinInterval > 0 && !q.shuttingDown.Load() && q.nextStartLocked(s, now) > now {
		it.state, it.flags = resting, 0
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
