package priorityqueue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"k8s.io/utils/clock"
)

// Queue is a queue as the package comment describes it. It is made by [New]; its zero value is not usable.
// All methods are safe for concurrent use. A key that cannot be hashed or is not equal to itself (NaN) makes
// the method that it is passed to panic, and leaves the queue as it was.
type Queue[T comparable] struct {
	config Config[T]
	epoch  time.Time // the zero of the times in the queue
	// alwaysTimed makes every call read the clock.
	alwaysTimed bool

	// shuttingDown is written under the lock and read without.
	shuttingDown atomic.Bool
	// timesPending reports whether a key waits, to callers that are about to lock the queue and may have to
	// read the clock before.
	timesPending atomic.Bool
	// loop counts the goroutine that runs waitingLoop.
	loop sync.WaitGroup
	// wakeLoop carries at most one wake-up for the waiting loop. See unlock.
	wakeLoop chan struct{}

	// asking is held while the limiter is asked, and locked before gate. See addRateLimited.
	asking sync.Mutex

	// gate is the lock of all that follows. No foreign code runs under it.
	gate gate.Gate

	// keys has a slot for every key that is ready, waiting, running or resting, and for no other.
	keys keytable.Table[T, item]
	// details are what the queue knows of some keys only.
	details keytable.Column[details]
	last    keytable.LastTaken[T]

	// lines are the ready keys, a line for each priority and group. order has the lines from which a key can be
	// taken, the next one first, and blocked those of groups at their limit. See lines.go.
	lines          keytable.Table[lineKey, line]
	order, blocked slotheap.Heap
	// lastLine is the line that was looked up last, in a queue without groups. It is kept while it is empty.
	lastLine keytable.Slot
	// lastReady is the latest of the times at which keys took their places in lines, in a queue with Aging.
	lastReady int64

	// groups are the groups of keys, and rings whose turn it is. See lines.go.
	groups keytable.Table[string, group]
	rings  keytable.Table[int, ring]

	// due has the keys that wait for their time, and the running ones that must not come again before
	// theirs: the earliest first. dueSeq numbers them in the order of their adds.
	due    slotheap.Heap
	dueSeq uint32
	// looping reports whether waitingLoop runs. It does whenever a key waits, until shutdown. It sleeps
	// until sleepsUntil unless it is woken.
	looping     bool
	sleepsUntil int64

	// resting are the keys that are remembered for MinInterval alone, in the order in which they became so.
	resting list

	// queued and running count the keys of these states. blockedKeys counts the ready keys of groups at their
	// limit, and wishes the running keys that come again at once.
	queued, blockedKeys, running, wishes int

	paused bool
	// stopped reports that ShutDownNow was called: nothing is handed out any more.
	stopped bool

	adds, retries, dropped, unmatchedDones uint64

	// observer is nil without metrics. depths is kept with metrics only.
	observer *observe.Observer
	depths   depths
}

var (
	_ workqueue.TypedRateLimitingInterface[int] = (*Queue[int])(nil)
	_ workqueue.Extended[int]                   = (*Queue[int])(nil)
)

// item is what the queue knows of every key.
type item struct {
	// priority is that of a ready or waiting key, and that with which a running one was handed out.
	priority int
	// prev and next are the neighbours of a ready or parked key in its line, and of a resting one.
	prev, next keytable.Slot
	// home is the line of a ready or parked key, and the group of another one.
	home  keytable.Slot
	state state
}

// state is where a key is, and what is to become of it.
type state uint16

const (
	// A key is in exactly one of these four.
	ready   state = 1 << iota // in a line
	waiting                   // in due, and nowhere else
	running                   // held by a worker
	resting                   // in resting

	again     // of a running key: comes again when its worker is Done
	timed     // of a running key that comes again: not before its time, for which it is in due
	parked    // of a running key that comes again: it has its place in a line
	backoff   // of a waiting or timed key: the limiter was asked for it
	retryWins // of a running key that comes again: if the limiter is asked, its time replaces this one
	dated     // details.added is known
)

// details are what the queue knows of a key that has waited or comes again, and of every key if
// Config.Aging or MinInterval is set.
type details struct {
	// priority is that with which a running key comes again.
	priority int
	// since is when a ready or parked key took its place, in a queue with Aging.
	since int64
	// added is when the key was first added since its last hand-out.
	added int64
	// started is when the key was last handed out, in a queue with MinInterval.
	started int64
}

// maxPerLock is how many keys are added, taken, copied or dropped under one lock. Each takes less than a
// microsecond, so others wait for a fraction of a millisecond.
const maxPerLock = 512

// New returns a queue configured by config. It starts no goroutine, and a queue that is no longer referred to
// needs no ShutDown to be collected, unless a key waits in it. New panics if config makes no sense: a
// negative value, or Weight or Limit without Group.
func New[T comparable](config Config[T]) *Queue[T] {
	config.check()
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.RateLimiter == nil {
		config.RateLimiter = workqueue.DefaultTypedControllerRateLimiter[T]()
	}
	if config.Delay == DefaultDelay {
		config.Delay = Earliest
	}
	q := &Queue[T]{
		config:      config,
		epoch:       config.Clock.Now(),
		alwaysTimed: config.Aging > 0 || config.MinInterval > 0,
		wakeLoop:    make(chan struct{}, 1),
		lastReady:   unknown,
	}
	q.beginObserving()
	return q
}

// lockAt locks the queue and makes ready what is due at now, a reading of readClock. So a key whose time has come
// is there for every caller, also before the waiting loop has noticed. (Where many come due at once, the rest is left
// to the next callers, and to the loop, which goes on without a sleep.)
func (q *Queue[T]) lockAt(now int64) {
	q.gate.Lock()
	q.advanceLocked(now)
}

// unlock ends every critical section after which there may be something to do for others: for a sleeping
// getter, a key to take or a shutdown to notice; for the waiting loop, another time to wait for; and for
// drains, that nothing is left. It is deferred, so that it also happens when the caller panics.
func (q *Queue[T]) unlock() {
	if q.gate.Watched() {
		if q.takeable() || q.exhausted() {
			q.gate.Wake()
		}
		if q.queued+q.running == 0 {
			q.gate.EndDrain(nil)
		}
	}
	wake := q.tendLoopLocked()
	q.gate.Unlock()
	if wake {
		select {
		case q.wakeLoop <- struct{}{}:
		default: // The loop has not received the last one yet.
		}
	}
}

// takeable reports whether a key can be handed out.
func (q *Queue[T]) takeable() bool { return q.order.Len() > 0 && !q.paused && !q.stopped }

// exhausted reports whether no key will be handed out any more unless a worker is Done with one that comes again.
func (q *Queue[T]) exhausted() bool { return q.shuttingDown.Load() && (q.queued == 0 || q.stopped) }

// Len returns the number of ready keys, including blocked ones, and without those that wait for their time or are
// being processed.
func (q *Queue[T]) Len() int {
	q.lockAt(q.readClock(false))
	defer q.unlock()
	return q.queued
}

// retireLocked takes the key at s, which is in no line and not in due any more, out of its group, and forgets it: at once,
// or when its MinInterval is over.
func (q *Queue[T]) retireLocked(s keytable.Slot, it *item, now int64) {
	if q.config.Group != nil {
		q.leaveGroupLocked(it.home)
	}
	if q.config.MinInterval > 0 && !q.shuttingDown.Load() && q.floorOf(s) > now {
		q.restLocked(s, it)
		return
	}
	q.deleteLocked(s)
}

func (q *Queue[T]) deleteLocked(s keytable.Slot) {
	q.keys.Delete(s)
	if !q.keys.HasMemory(s) {
		q.details.Release(s)
		q.due.Release(s)
		if q.observer != nil {
			q.observer.Release(s)
		}
	}
}
