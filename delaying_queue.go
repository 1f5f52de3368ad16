package workqueue

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/keyedqueue/workqueue/internal/alarm"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
)

// DelayingInterface is a [TypedDelayingInterface] of keys of any type.
//
// Deprecated: Use TypedDelayingInterface.
type DelayingInterface TypedDelayingInterface[any]

// TypedDelayingInterface is a queue to which a key can be added for later.
type TypedDelayingInterface[T comparable] interface {
	TypedInterface[T]
	// AddAfter adds item when duration has passed, or at once if duration is not positive. If item waits
	// already, the earlier time counts. Until it comes due, item can be added as well, and then comes twice. In the
	// queues of this package AddAfter never blocks. After shutdown it does nothing.
	AddAfter(item T, duration time.Duration)
}

// DelayingQueueConfig is a [TypedDelayingQueueConfig] of keys of any type.
//
// Deprecated: Use TypedDelayingQueueConfig.
type DelayingQueueConfig = TypedDelayingQueueConfig[any]

// TypedDelayingQueueConfig configures [NewTypedDelayingQueueWithConfig].
type TypedDelayingQueueConfig[T comparable] struct {
	// Logger logs how many keys were still waiting at shutdown. The queue adds no name to it. Nil means no log. It may
	// be called on the queue's own goroutine, for which a shutdown waits, so it must not shut the queue down.
	Logger *logr.Logger

	// Name is the queue's name in its metrics. A queue without a name has no metrics.
	Name string

	// MetricsProvider makes the queue's metrics. Nil means the one of SetProvider.
	MetricsProvider MetricsProvider

	// Clock is where all times come from. Nil means the real clock.
	Clock clock.WithTicker

	// Queue is where keys go when they are due. Nil means one from NewTypedWithConfig with the fields
	// above, which have no effect on a Queue that is given here.
	Queue TypedInterface[T]
}

// NewDelayingQueue returns a delaying queue without metrics.
//
// Deprecated: Use NewTypedDelayingQueue.
func NewDelayingQueue() DelayingInterface {
	return NewDelayingQueueWithConfig(DelayingQueueConfig{})
}

// NewTypedDelayingQueue returns a delaying queue without metrics. It has a goroutine only while a key
// waits for its time.
func NewTypedDelayingQueue[T comparable]() TypedDelayingInterface[T] {
	return NewTypedDelayingQueueWithConfig(TypedDelayingQueueConfig[T]{})
}

// NewDelayingQueueWithConfig returns a delaying queue configured by config.
//
// Deprecated: Use NewTypedDelayingQueueWithConfig.
func NewDelayingQueueWithConfig(config DelayingQueueConfig) DelayingInterface {
	return NewTypedDelayingQueueWithConfig(config)
}

// TypedNewDelayingQueue is NewTypedDelayingQueue.
//
// Deprecated: Use NewTypedDelayingQueue.
func TypedNewDelayingQueue[T comparable]() TypedDelayingInterface[T] {
	return NewTypedDelayingQueue[T]()
}

// NewTypedDelayingQueueWithConfig returns a delaying queue configured by config. The result is also an [Extended],
// whatever config.Queue is.
func NewTypedDelayingQueueWithConfig[T comparable](config TypedDelayingQueueConfig[T]) TypedDelayingInterface[T] {
	provider := providerFor(config.Name, config.MetricsProvider)
	return inspected[T](newDelayingQueue(config, provider), config.Name, provider, config.Queue)
}

// newDelayingQueue builds a delaying queue. Like newQueue it does not look for the global provider.
func newDelayingQueue[T comparable](config TypedDelayingQueueConfig[T], provider MetricsProvider) TypedDelayingInterface[T] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	// A provider may panic. So this comes before the queue below, whose ticker would be left running.
	retriesMetric := newRetriesMetric(config.Name, provider)
	ownsQueue := config.Queue == nil
	if ownsQueue {
		config.Queue = newQueue(TypedQueueConfig[T]{Name: config.Name, Clock: config.Clock}, provider, unfinishedWorkUpdatePeriod)
	}
	q := &delayingType[T]{
		Extended:      Extend(config.Queue),
		name:          config.Name,
		clock:         steady(config.Clock),
		retriesMetric: retriesMetric,
		logger:        logr.Discard(),
		changed:       make(chan struct{}, 1),
	}
	if config.Logger != nil {
		q.logger = *config.Logger
	}
	if ownsQueue {
		watch(config.Name, provider, q.Stats)
	} else {
		watch(config.Name, provider, q.ownStats)
	}
	return q
}

// NewDelayingQueueWithCustomQueue returns a delaying queue with metrics of that name, whose keys go
// to q when they are due.
//
// Deprecated: Use NewTypedDelayingQueueWithConfig.
func NewDelayingQueueWithCustomQueue(q Interface, name string) DelayingInterface {
	return NewDelayingQueueWithConfig(DelayingQueueConfig{Name: name, Queue: q})
}

// NewNamedDelayingQueue returns a delaying queue with metrics of that name.
//
// Deprecated: Use NewTypedDelayingQueueWithConfig.
func NewNamedDelayingQueue(name string) DelayingInterface {
	return NewDelayingQueueWithConfig(DelayingQueueConfig{Name: name})
}

// NewDelayingQueueWithCustomClock returns a delaying queue with metrics of that name, on that clock.
//
// Deprecated: Use NewTypedDelayingQueueWithConfig.
func NewDelayingQueueWithCustomClock(clock clock.WithTicker, name string) DelayingInterface {
	return NewDelayingQueueWithConfig(DelayingQueueConfig{Name: name, Clock: clock})
}

// steadyClock is a [clock.RealClock] that reads only the monotonic clock, which costs half as much. It does not
// follow jumps of the wall clock, which do not matter to a queue: it uses differences of times.
type steadyClock struct {
	clock.RealClock
	epoch time.Time
}

func (c steadyClock) Now() time.Time { return c.epoch.Add(time.Since(c.epoch)) }

// steady returns c or, if that is the real clock, a steady one.
func steady(c clock.Clock) clock.Clock {
	if r, ok := c.(clock.RealClock); ok {
		return steadyClock{RealClock: r, epoch: r.Now()}
	}
	return c
}

// delayingType puts AddAfter on top of a queue. Keys wait in a heap. While there is one, a goroutine runs
// waitingLoop, which adds them to the queue below when they are due.
type delayingType[T comparable] struct {
	Extended[T]

	name          string
	clock         clock.Clock
	logger        logr.Logger
	retriesMetric CounterMetric

	// changed makes the waiting loop look at the heap again: the earliest due time has changed, or no key waits.
	changed chan struct{}
	// loop has the goroutine that runs waitingLoop, so that a shutdown can wait for its end.
	loop sync.WaitGroup
	// moved is how many keys of moving the loop has added to the queue below. Only the loop uses it.
	moved int

	// mu guards what follows. No method of the queue below, of the clock, the metric or the logger is
	// called under it.
	mu      sync.Mutex
	waiting dueHeap[T]
	// moving has keys that the waiting loop has taken from the heap, and may not have added to the
	// queue below yet. The loop reads it without the lock.
	moving []keytable.Hashed[T]
	// looping reports whether waitingLoop runs. It does whenever a key waits.
	looping bool
	// sleepsUntil is when waitingLoop will look at the heap again if changed does not wake it. It is zero if
	// the loop is about to look.
	sleepsUntil time.Time
	stopped     bool
	retries     uint64
	dropped     uint64
	// arrivals counts the keys that have begun to wait.
	arrivals uint64
}

// maxBatch is the number of due keys that the waiting loop takes from the heap under one lock.
const maxBatch = 64

// AddAfter adds item when duration has passed on the queue's clock, or at once if duration is not
// positive. If item is waiting already, the earlier time counts. It never blocks, and takes O(log n)
// time for n waiting keys, on average constant time if they are due in no particular order. An Add of
// a waiting item does not cancel its waiting. An item that would be due more than 292 years after the
// first of the waiting keys was added never comes. After shutdown AddAfter does nothing.
func (q *delayingType[T]) AddAfter(item T, duration time.Duration) {
	if q.ShuttingDown() {
		return
	}
	q.retriesMetric.Inc()
	if duration <= 0 {
		if q.countRetry() {
			q.Add(item)
		}
		return
	}
	if q.wait(item, keytable.HashOf(item), q.clock.Now(), duration) {
		q.notify()
	}
}

// countRetry counts a call of AddAfter. It returns false, and does not count, if a shutdown has begun: the numbers of a
// queue that is shut down and empty do not change any more.
func (q *delayingType[T]) countRetry() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.countRetryLocked()
}

func (q *delayingType[T]) countRetryLocked() bool {
	if q.stopped {
		return false
	}
	q.retries++
	return true
}

// wait counts a call of AddAfter and makes item wait. It returns whether the waiting loop sleeps for too long.
func (q *delayingType[T]) wait(item T, h keytable.Hash, now time.Time, d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.countRetryLocked() {
		return false
	}
	before := q.waiting.len()
	isFirst := q.waiting.put(h, item, now, d)
	q.arrivals += uint64(q.waiting.len() - before)
	if !isFirst {
		return false
	}
	if !q.looping {
		q.looping = true
		q.loop.Go(q.waitingLoop)
	}
	return now.Add(d).Before(q.sleepsUntil)
}

// notify makes the waiting loop look at the heap again.
func (q *delayingType[T]) notify() {
	select {
	case q.changed <- struct{}{}:
	default: // The loop has not received the last one yet.
	}
}

// waitingLoop adds keys to the queue below when they are due, and returns when none waits any more.
func (q *delayingType[T]) waitingLoop() {
	ended := false
	defer func() {
		if !ended {
			// The clock or the queue below has called runtime.Goexit. Without a loop no key would ever come again.
			q.loop.Go(q.waitingLoop)
		}
	}()
	timer := q.clock.NewTimer(alarm.MaxSleep)
	defer timer.Stop()
	for {
		next, ok := q.takeDue()
		if !ok {
			ended = true
			return
		}
		if q.moved < len(q.moving) {
			q.addDue()
			continue
		}
		if !q.setAlarm(timer, next) {
			continue
		}
		select {
		case <-timer.C():
		case <-q.changed:
		}
	}
}

// setAlarm makes timer fire at next. It returns false if that is not after now.
func (q *delayingType[T]) setAlarm(timer clock.Timer, next time.Time) bool {
	_, isReal := q.clock.(steadyClock)
	return alarm.Set(timer, isReal, func() time.Duration { return next.Sub(q.clock.Now()) })
}

// takeDue moves up to maxBatch due keys from the heap to moving. If there is none, it returns when to look again.
// It returns false if no key waits, and then the loop counts as ended.
func (q *delayingType[T]) takeDue() (next time.Time, ok bool) {
	if q.ShuttingDown() {
		// The queue below may have been shut down without this one.
		q.logDropped(q.stopWaiting())
	}
	now := q.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sleepsUntil = time.Time{}
	if q.moved < len(q.moving) {
		return now, true // A loop that was restarted goes on with the batch of the last one.
	}
	clear(q.moving)
	q.moving, q.moved = q.waiting.popDue(now, q.moving[:0]), 0
	switch {
	case len(q.moving) > 0:
		return now, true
	case q.waiting.len() == 0:
		q.looping, q.moving = false, nil
		return now, false
	}
	q.sleepsUntil = now.Add(min(alarm.MaxSleep, q.waiting.untilNext(now)))
	return q.sleepsUntil, true
}

// addDue adds the keys of moving to the queue below. If that is shut down, they count as dropped. (A queue that is not
// ours may be shut down at the very moment of an Add, which then goes unnoticed.)
func (q *delayingType[T]) addDue() {
	// Our own layer 1 takes a batch under one lock. Asking for an interface would also find that method in a user's
	// queue that embeds ours, and miss an Add of that queue's own.
	if below, ok := q.Extended.(*Typed[T]); ok {
		below.addDue(q.moving, &q.moved)
	}
	for q.moved < len(q.moving) && !q.ShuttingDown() {
		q.Add(q.moving[q.moved].Key)
		q.moved++
	}
	if n := len(q.moving) - q.moved; n > 0 {
		q.moved += n
		q.mu.Lock()
		defer q.mu.Unlock()
		q.dropped += uint64(n)
	}
}

// ShutDown makes the queue ignore what is added from now on, and drops the keys that still wait for
// their time; [Stats].Dropped counts them. Keys that are queued are still handed out. Drains that
// wait return. ShutDown may be called any number of times. It waits for the goroutines of the queue,
// which end at once; so the configured Queue, Clock and Logger, which such a goroutine may be calling, must not call
// it.
func (q *delayingType[T]) ShutDown() {
	defer q.logDropped(q.stopWaiting()) // Last, because a logger may panic.
	q.Extended.ShutDown()
	q.loop.Wait()
}

// ShutDownWithDrain is ShutDown that waits until nothing is queued and nothing is being processed. The
// keys that still wait for their time are dropped before the wait and not after it.
func (q *delayingType[T]) ShutDownWithDrain() {
	defer q.logDropped(q.stopWaiting())
	q.Extended.ShutDownWithDrain()
	q.loop.Wait()
}

// ShutDownContext is ShutDownWithDrain that waits no longer than until ctx is done. See
// [Extended].ShutDownContext for what it returns.
func (q *delayingType[T]) ShutDownContext(ctx context.Context) error {
	defer q.logDropped(q.stopWaiting())
	defer q.loop.Wait()
	return q.Extended.ShutDownContext(ctx)
}

// stopWaiting drops all waiting keys, lets no other wait, and so ends the waiting loop. It returns how many keys
// it has dropped.
func (q *delayingType[T]) stopWaiting() int {
	defer q.notify()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.waiting.clear()
	q.stopped = true
	q.dropped += uint64(n)
	return n
}

func (q *delayingType[T]) logDropped(n int) {
	if n > 0 {
		q.logger.Info("Dropped keys that were waiting for their time, because the queue is shut down", "keys", n)
	}
}

// Stats returns the queue's numbers. It takes constant time.
func (q *delayingType[T]) Stats() Stats {
	// A program may take a queue without keys as a sign that it is done. So a key that moves between the layers
	// meanwhile must be counted, if need be twice: Waiting has all keys that have waited at any time until the
	// queue below was read.
	waiting, arrivals := q.numWaiting()
	st := q.Extended.Stats()
	_, now := q.numWaiting()
	st.Waiting += waiting + int(now-arrivals)
	q.addStats(&st)
	return st
}

// ownStats are the Stats of this layer alone.
func (q *delayingType[T]) ownStats() Stats {
	st := Stats{ShuttingDown: q.ShuttingDown()}
	st.Waiting, _ = q.numWaiting()
	q.addStats(&st)
	return st
}

// addStats adds this layer's numbers to st, except Waiting.
func (q *delayingType[T]) addStats(st *Stats) {
	if q.name != "" {
		st.Name = q.name
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	st.Retries += q.retries
	st.Dropped += q.dropped
}

// numWaiting returns how many keys wait, and how many have ever begun to wait.
func (q *delayingType[T]) numWaiting() (n int, arrivals uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.len() + len(q.moving), q.arrivals
}
