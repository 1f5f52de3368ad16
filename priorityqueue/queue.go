package priorityqueue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/notes"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"github.com/keyedqueue/workqueue/operate"
	"k8s.io/utils/clock"
)

// Queue is a queue as the package comment describes it. It is made by [New]; its zero value is not usable.
// All methods are safe for concurrent use. Package workqueue says what keys can be.
type Queue[T comparable] struct {
	workqueue.Unimplemented[T]
	operate.UnimplementedOperable[T]

	config      Config[T]
	alwaysTimed bool // every call reads the clock: with Aging, MinInterval or metrics

	shuttingDown atomic.Bool // written under the lock and read without

	// asking is held while the limiter is asked, and locked before mu. See addRateLimited.
	asking sync.Mutex

	// failures counts how often keys have failed. It has a lock of its own.
	failures *failures.Counts[T]

	// loop makes keys queued when they are due. Its methods whose names end in Locked need mu.
	loop *dueloop.Loop
	// observer measures times. Its methods need mu. It is nil without metrics.
	observer *observe.Observer

	leftLogged atomic.Bool // how many keys a drain leaves

	// mu is the lock. No foreign code but the clock runs under it: a time that was read before would be an old
	// one when the lock is taken at last, and a key that was handed out meanwhile could come too early.
	mu struct {
		gate.Gate

		// keys has a slot for every key in the queue and every resting one; details is a column beside it.
		keys    keytable.Table[T, keyInfo]
		details keytable.Column[details]
		notes   notes.Notes[workqueue.Causes] // of the keys that are noted
		// lists chains the keys of each line, and the resting ones.
		lists keytable.Lists

		// lines has the queued keys, and those in state rerun that are not on hold. order has the lines from which
		// a key can be taken, blocked those of blocked groups. See order.go.
		lines          keytable.Table[lineKey, line]
		order, blocked slotheap.Heap
		// zeroLine is the line of priority 0 in a queue without groups, where most keys are: it is not looked up,
		// and stays when it has no keys. It is None before the first of them, and in a queue with groups.
		zeroLine keytable.Slot
		// lastPlaced is the latest of the times at which keys took their places in lines, with Aging.
		lastPlaced time.Duration

		// What follows, up to ringLinks, is used with groups. See groups.go.

		groups  keytable.Table[string, group]
		groupOf keytable.Column[keytable.Slot] // of each key
		// linesOfGroup chains the lines of each group.
		linesOfGroup keytable.Lists
		// rings has, for each priority, its lines in the order of their turns, which ringLinks chains.
		rings     keytable.Table[int, keytable.List]
		ringLinks keytable.Lists

		// due has the waiting and rerunLater keys, the earliest first. dueSeq is the next Tie, in due and in the
		// heap of pauses: what has the same time comes in the order of the calls.
		due    slotheap.Heap
		dueSeq uint32
		// queuePaused reports whether the queue itself is paused. pauseEnd is when the next pause ends, of the
		// queue or of a group, or dueloop.Never. Each call looks at both. pauses has all that is paused.
		queuePaused bool
		pauseEnd    time.Duration
		pauses      *pauses
		// resting has the keys that rest, in the order in which they began to.
		resting keytable.List
		// intervalsOver reports that a shutdown has begun, and no MinInterval counts any more.
		intervalsOver bool

		// queued, blockedKeys (of blocked groups), held and reruns (state rerun, not rerunLater) count keys.
		// onHold counts those of held that are on hold, rerunsOnHold those of reruns.
		queued, blockedKeys, held, reruns, onHold, rerunsOnHold int

		// lastTaken is the key that was handed out last, or None if it is Done. It saves a single worker's
		// Done from hashing its key and looking it up, a third of a cycle.
		lastTaken keytable.Slot

		// stopped: nothing is handed out any more (ShutDownNow, DropQueued). dropsQueued: what is or becomes queued
		// is dropped, once they have taken all that were queued.
		stopped, dropsQueued bool

		// idleSince is when a drain began, or when it has last seen that the last held key was Done.
		idleSince time.Time

		adds, retries, dropped, unmatchedDones uint64
		depths                                 depths
	}
}

var (
	_ workqueue.ExtendedRateLimiting[int] = (*Queue[int])(nil)
	_ operate.Operable[int]               = (*Queue[int])(nil)
)

// maxPerLock is how many keys are added, taken, copied (of each state), dropped or forgotten under one lock.
// Each takes up to two microseconds.
const maxPerLock = 512

// New returns a queue configured by config. It starts no goroutine, and a queue that is no longer referred to
// is collected without ShutDown unless it has metrics, a key waits, or a pause has an end. New panics if
// config makes no sense: see the fields.
func New[T comparable](config Config[T]) *Queue[T] {
	config.check()
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.RateLimiter == nil {
		config.RateLimiter = workqueue.NewTypedControllerRateLimiter[T](config.Clock)
	}
	q := &Queue[T]{config: config, alwaysTimed: config.Aging > 0 || config.MinInterval > 0}
	q.failures = failures.New(config.Clock, func(key T) bool {
		_, found := q.snapshotKey(key)
		return found
	})
	q.loop = dueloop.New(config.Clock, q.moveDue)
	q.mu.lastPlaced = longAgo
	q.mu.pauses, q.mu.pauseEnd = new(pauses), dueloop.Never
	q.beginObserving()
	return q
}

// unlock ends every critical section: see [gate.Gate]. Others may have something to do afterwards: a sleeping
// getter has a key to take or a shutdown to notice, the loop another time to wait for, and drains end when
// nothing is left.
func (q *Queue[T]) unlock() {
	if q.mu.Watched() {
		if q.canTakeLocked() || q.isExhaustedLocked() {
			q.mu.Wake()
		}
		if q.mu.queued+q.mu.held == 0 {
			q.mu.EndDrain(nil)
		}
	}
	next := q.nextDueLocked()
	wake := q.loop.TendLocked(next)
	q.mu.UnlockAndSend()
	if wake {
		q.loop.Wake()
	}
}

// canTakeLocked reports whether Get would return a key.
func (q *Queue[T]) canTakeLocked() bool {
	return q.mu.order.Len() > 0 && !q.mu.queuePaused && !q.mu.stopped
}

// isExhaustedLocked reports whether Get returns shutdown. It does not wait for keys in state rerun.
func (q *Queue[T]) isExhaustedLocked() bool {
	return q.shuttingDown.Load() && (q.mu.queued == 0 || q.mu.stopped)
}

// Len returns the number of queued keys, including blocked ones.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.unlock()
	q.advanceLocked()
	return q.mu.queued
}

// findLocked returns the slot of a key in the queue and what is known of it, or None and nil. A resting key
// is not in the queue.
func (q *Queue[T]) findLocked(h keytable.Hash, key T) (keytable.Slot, *keyInfo) {
	if s, e := q.mu.keys.Find(h, key); e != nil && e.Value.state != resting {
		return s, &e.Value
	}
	return keytable.None, nil
}
