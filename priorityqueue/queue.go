package priorityqueue

import (
	"context"
	"errors"
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
	name    string
	clock   clock.WithTicker
	epoch   time.Time // the zero of the times in the queue
	limiter workqueue.TypedRateLimiter[T]

	aging       time.Duration
	minInterval time.Duration
	groupOf     func(T) string
	weightOf    func(string) int
	maxPerGroup int
	// alwaysTimed tells that every call needs to know what time it is.
	alwaysTimed bool

	// shuttingDown is written under the lock and read without.
	shuttingDown atomic.Bool
	// timesPending tells whether a key waits, to those who are about to lock gate and may have to read the
	// clock before.
	timesPending atomic.Bool
	// loop counts the goroutine that runs waitingLoop.
	loop sync.WaitGroup
	// changed carries at most one wake-up for the waiting loop. See unlock.
	changed chan struct{}

	// asking is held while the limiter is asked, and locked before gate. See addRateLimited.
	asking sync.Mutex

	// gate is the lock of all that follows. No foreign code runs under it.
	gate *gate.Gate

	// keys has a slot for every key that is ready, waiting, running or resting, and for no other.
	keys keytable.Table[T, item]
	// details are what the queue knows of some keys only.
	details keytable.Column[details]

	// lines are the ready keys, a line for each priority and group, order is who of them is next, and
	// recent are lines that were asked for last. See ready.go.
	lines  keytable.Table[lineKey, line]
	order  slotheap.Heap
	recent [recentLines]keytable.Slot
	// lastReady is the latest of the times at which keys became ready.
	lastReady int64

	// groups are the groups of keys, and rings whose turn it is. See groups.go.
	groups keytable.Table[string, group]
	rings  keytable.Table[int, ring]

	// due has the keys that wait for their time, and the running ones that are not to come again before
	// theirs: the earliest first. dueSeq numbers them in the order of their adds.
	due    slotheap.Heap
	dueSeq uint32
	// looping tells that waitingLoop runs. It does whenever a key waits. It sleeps until sleepsUntil, and
	// told tells that a wake-up is on its way to it.
	looping     bool
	sleepsUntil int64
	told        bool

	// resting are the keys that are remembered for MinInterval alone, in the order in which they became so.
	resting list

	// queued and running count the keys of these states, and wishes the running ones that are to come again
	// at once.
	queued, running, wishes int
	last                    keytable.LastTaken[T]
	// preloaded is about how many of the keys that are handed out next were preloaded. It need not be right.
	preloaded int

	paused bool

	adds, retries, dropped, unmatchedDones uint64

	// observer is nil if nobody wants to know. depths is kept if it is not.
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
	// prev and next are the neighbours of a ready key in its line, and of a resting one.
	prev, next keytable.Slot
	// home is the line of a ready key, and the group of a waiting or running one.
	home  keytable.Slot
	state state
}

// state tells where a key is, and what is to become of it.
type state uint16

const (
	// A key is in exactly one of these four.
	ready   state = 1 << iota // in a line
	waiting                   // in due, and nowhere else
	running                   // held by a worker
	resting                   // in resting

	again   // of a running key: comes again when its worker is Done
	timed   // of a running key to come again: not before its time, for which it is in due
	backoff // of a waiting or timed key: the limiter was asked for it
	yields  // of a running key to come again: when does not matter if the limiter is asked
	dated   // details.added is known
)

// details are what the queue knows of a key that has waited, or is to come again, and of every key if
// Config.Aging or MinInterval is set.
type details struct {
	// priority is that with which a running key is to come again.
	priority int
	// since is when a ready key became so, in a queue with Aging.
	since int64
	// added is when the key was first added since its last hand-out.
	added int64
	// started is when the key was last handed out, in a queue with MinInterval.
	started int64
}

// New returns a queue as config tells. It starts no goroutine, and a queue that is no longer referred to
// needs no ShutDown to be collected, unless a key waits in it. New panics if config makes no sense: a
// negative value, or Weight or MaxPerGroup without Group.
func New[T comparable](config Config[T]) *Queue[T] {
	config.check()
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.RateLimiter == nil {
		config.RateLimiter = workqueue.DefaultTypedControllerRateLimiter[T]()
	}
	q := &Queue[T]{
		name:        config.Name,
		clock:       config.Clock,
		limiter:     config.RateLimiter,
		aging:       config.Aging,
		minInterval: config.MinInterval,
		groupOf:     config.Group,
		weightOf:    config.Weight,
		maxPerGroup: config.MaxPerGroup,
		alwaysTimed: config.Aging > 0 || config.MinInterval > 0,
		gate:        gate.New(),
		epoch:       config.Clock.Now(),
		changed:     make(chan struct{}, 1),
		lastReady:   unknown,
	}
	q.beginObserving(&config)
	return q
}

// Len returns the number of ready keys, including those whose group is at its limit, and without those that
// wait for their time or are being processed.
func (q *Queue[T]) Len() int {
	q.lock(false)
	defer q.unlock()
	return q.queued
}

// Get blocks until a key can be handed out, and hands it to the caller, who must call Done with it. After
// shutdown it hands out the keys that are still queued, waiting for a Done where a group is at its limit,
// and then returns shutdown = true without blocking.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, _, err := q.get(context.Background())
	return item, err != nil
}

// GetWithPriority is Get that also tells the key's priority: the one that it was added with, whatever it has
// gained by Aging.
func (q *Queue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, priority, err := q.get(context.Background())
	return item, priority, err != nil
}

// GetContext is Get that gives up when ctx is done, also if keys are queued: then it takes none and returns
// ctx.Err(). After shutdown, when nothing is queued, it returns [workqueue.ErrShutDown].
func (q *Queue[T]) GetContext(ctx context.Context) (item T, err error) {
	item, _, err = q.get(ctx)
	return item, err
}

func (q *Queue[T]) get(ctx context.Context) (key T, priority int, err error) {
	done, err := doneOf(ctx)
	if err != nil {
		return key, 0, err
	}
	err = q.withKey(done, func(now int64) { key, priority = q.takeLocked(now) })
	return key, priority, errorOf(ctx, err)
}

// GetBatch waits like GetContext until a key can be handed out, and then takes that one and those that can be
// handed out at the same moment, up to limit of them. The caller must call Done with each. It allocates
// the slice that it returns. It panics if limit is less than one.
func (q *Queue[T]) GetBatch(ctx context.Context, limit int) (batch []T, err error) {
	if limit < 1 {
		panic("priorityqueue: GetBatch of less than one key")
	}
	done, err := doneOf(ctx)
	if err != nil {
		return nil, err
	}
	err = q.withKey(done, func(now int64) {
		for len(batch) < limit && q.takeable() {
			key, _ := q.takeLocked(now)
			batch = append(batch, key)
		}
	})
	return batch, errorOf(ctx, err)
}

// withKey waits until a key can be handed out, and calls take under the lock.
func (q *Queue[T]) withKey(done <-chan struct{}, take func(now int64)) error {
	now := q.lock(false)
	defer q.unlock()
	now, err := q.awaitLocked(done, now)
	if err == nil {
		take(now)
	}
	return err
}

// errDone is what a getter returns under the lock instead of its context's error: Err is foreign code.
var errDone = errors.New("priorityqueue: the context is done")

// doneOf returns ctx.Done(), or ctx.Err() if ctx is done.
func doneOf(ctx context.Context) (<-chan struct{}, error) { return ctx.Done(), ctx.Err() }

// errorOf returns err, or ctx.Err() if err is errDone.
func errorOf(ctx context.Context, err error) error {
	if err != errDone {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled // A context that breaks the contract of its interface.
}

// awaitLocked waits until a key can be handed out, or there is an error to return. It returns the time.
func (q *Queue[T]) awaitLocked(done <-chan struct{}, now int64) (int64, error) {
	for {
		if q.takeable() {
			return now, nil
		}
		if q.shuttingDown.Load() && q.queued == 0 {
			return now, workqueue.ErrShutDown
		}
		if !q.gate.Sleep(done, func() { now = q.readTime(false) }) {
			return now, errDone
		}
		q.passLocked(now)
	}
}

// takeable reports whether a key can be handed out.
func (q *Queue[T]) takeable() bool { return q.order.Len() > 0 && !q.paused }

// takeLocked hands out the next key. There must be one.
func (q *Queue[T]) takeLocked(now int64) (T, int) {
	s := q.nextLocked()
	if q.keys.IsLarge() {
		q.preloadLocked(s)
	}
	e := q.keys.At(s)
	q.leaveLineLocked(s, &e.Value)
	e.Value.state = running | e.Value.state&dated
	q.running++
	q.last.Took(s, q.running)
	if q.groupOf != nil {
		q.beginLocked(e.Value.home)
	}
	if q.minInterval > 0 {
		q.details.At(s).started = now
	}
	if q.observer != nil {
		q.observer.Taken(s, time.Duration(now))
	}
	return e.Key, e.Value.priority
}

// preloadLocked prepares for handing out the key at s, and those after it in its line.
func (q *Queue[T]) preloadLocked(s keytable.Slot) {
	if q.preloaded > 0 {
		q.preloaded--
		return
	}
	var next [keytable.PreloadLen]keytable.Slot
	for i := range next {
		next[i] = s
		if s = q.keys.At(s).Value.next; s == keytable.None {
			break
		}
	}
	q.keys.Preload(next[:])
	q.preloaded = len(next) - 1
}

// Done says that the caller is finished with an item from Get. If the item was added in the meantime, it
// becomes ready, or waits for the time that was asked for. Done of a key that no worker holds changes
// nothing but [workqueue.Stats].UnmatchedDones.
func (q *Queue[T]) Done(item T) {
	h, hashed := q.last.Hash(item)
	now := q.lock(false)
	defer q.unlock()
	q.doneLocked(item, h, hashed, now)
}

// DoneAndGet is Done of done followed by GetContext, under one lock: for a worker that takes one key after the other.
// If it returns an error, done is Done nevertheless.
func (q *Queue[T]) DoneAndGet(ctx context.Context, done T) (item T, err error) {
	ended, err := doneOf(ctx)
	if err != nil {
		q.Done(done)
		return item, err
	}
	item, err = q.doneAndGet(ended, done)
	return item, errorOf(ctx, err)
}

func (q *Queue[T]) doneAndGet(ended <-chan struct{}, done T) (item T, err error) {
	h, hashed := q.last.Hash(done)
	now := q.lock(false)
	defer q.unlock()
	q.doneLocked(done, h, hashed, now)
	if now, err = q.awaitLocked(ended, now); err != nil {
		return item, err
	}
	item, _ = q.takeLocked(now)
	return item, nil
}

// doneLocked is Done of item, whose hash is h if it is hashed already.
func (q *Queue[T]) doneLocked(item T, h keytable.Hash, hashed bool, now int64) {
	s, e := keytable.FindTaken(&q.keys, &q.last, item, h, hashed)
	if e == nil || e.Value.state&running == 0 {
		q.unmatchedDones++
		return
	}
	it := &e.Value
	q.running--
	q.last.Ended(s)
	if q.groupOf != nil {
		q.endLocked(it.home)
	}
	if q.observer != nil {
		q.observer.Finished(s, time.Duration(now))
	}
	if it.state&again == 0 {
		q.leaveLocked(s, it, now)
		return
	}
	it.priority = q.details.At(s).priority
	if it.state&timed != 0 {
		it.state = waiting | it.state&(backoff|dated)
		return
	}
	q.wishes--
	q.pushLocked(s, it, now)
}

// leaveLocked takes the key at s, which is in no line and not in due any more, out of the queue.
func (q *Queue[T]) leaveLocked(s keytable.Slot, it *item, now int64) {
	if q.groupOf != nil {
		q.leaveGroupLocked(it.home)
	}
	if q.minInterval > 0 && !q.shuttingDown.Load() && q.floorOf(s) > now {
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

// unlock ends every critical section after which there may be something to do for others: for a sleeping
// getter, a key to take or a shutdown to notice; for the waiting loop, another time to wait for; and for
// drains, that nothing is left. It is deferred, so that it also happens when the caller panics.
func (q *Queue[T]) unlock() {
	if q.gate.Watched() {
		if q.takeable() || q.queued == 0 && q.shuttingDown.Load() {
			q.gate.Wake()
		}
		if q.queued+q.running == 0 {
			q.gate.EndDrain(nil)
		}
	}
	tell := (q.due.Len() > 0 || q.looping) && q.tendLoopLocked()
	if pending := q.due.Len() > 0; pending != q.timesPending.Load() {
		q.timesPending.Store(pending)
	}
	q.gate.Unlock()
	// After unlocking, so that the loop does not run into the lock. This cannot block: there is room for
	// one wake-up, and another one is sent only when this one was received.
	if tell {
		q.changed <- struct{}{}
	}
}
