package workqueue

import (
	"context"
	"sync"
	"sync/atomic"
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
	// AddAfter adds item when duration has passed, or at once if duration is not positive. It never
	// blocks. After shutdown it does nothing.
	AddAfter(item T, duration time.Duration)
}

// DelayingQueueConfig is a [TypedDelayingQueueConfig] of keys of any type.
//
// Deprecated: Use TypedDelayingQueueConfig.
type DelayingQueueConfig = TypedDelayingQueueConfig[any]

// TypedDelayingQueueConfig tells [NewTypedDelayingQueueWithConfig] what to build.
type TypedDelayingQueueConfig[T comparable] struct {
	// Logger is told how many keys were still waiting at shutdown. The queue adds no name to it. Nil
	// means that nobody is told.
	Logger *logr.Logger

	// Name is the queue's name in its metrics. A queue without a name has no metrics.
	Name string

	// MetricsProvider makes the queue's metrics. Nil means the one of SetProvider.
	MetricsProvider MetricsProvider

	// Clock is where all times come from. Nil means the real clock.
	Clock clock.WithTicker

	// Queue is where keys go when they are due. Nil means one from NewTypedWithConfig with the fields
	// above; a Queue that is given here knows nothing of them.
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

// NewDelayingQueueWithConfig returns a delaying queue as config tells.
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

// NewTypedDelayingQueueWithConfig returns a delaying queue as config tells. What it returns
// implements [Extended] too, whatever config.Queue is.
func NewTypedDelayingQueueWithConfig[T comparable](config TypedDelayingQueueConfig[T]) TypedDelayingInterface[T] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	// Before the queue below, which a provider that panics here would leave behind with its ticker running.
	retriesMetric := newRetriesMetric(config.Name, config.MetricsProvider)
	if config.Queue == nil {
		config.Queue = NewTypedWithConfig(TypedQueueConfig[T]{
			Name:            config.Name,
			MetricsProvider: config.MetricsProvider,
			Clock:           config.Clock,
		})
	}
	q := &delayingType[T]{
		Extended:      Extend(config.Queue),
		name:          config.Name,
		clock:         steady(config.Clock),
		retriesMetric: retriesMetric,
		logger:        logr.Discard(),
		changed:       make(chan struct{}, 1),
	}
	q.fifo, _ = config.Queue.(*Typed[T])
	if config.Logger != nil {
		q.logger = *config.Logger
	}
	watch(config.Name, config.MetricsProvider, q.ownStats)
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

// delayingType puts AddAfter on top of a queue. Keys wait in a heap, and while there is one, a
// goroutine runs waitingLoop to add them to the queue when they are due.
type delayingType[T comparable] struct {
	Extended[T]

	name          string
	clock         clock.Clock
	logger        logr.Logger
	retriesMetric CounterMetric

	// fifo is the queue below, if it is one of ours that takes many keys at once.
	fifo *Typed[T]
	// changed tells the waiting loop that the earliest due time has changed, or that no key waits.
	changed chan struct{}
	// loop counts the goroutine that runs waitingLoop.
	loop sync.WaitGroup

	retries atomic.Uint64

	// mu guards what follows. No method of the queue below, of the clock, the metric or the logger is
	// called under it.
	mu      sync.Mutex
	waiting dueHeap[T]
	// moving are the keys that the waiting loop has taken from the heap, and may not have added to the
	// queue below yet. The loop reads and clears them without the lock.
	moving []keytable.Hashed[T]
	// looping tells that waitingLoop runs. It does whenever a key waits.
	looping bool
	// sleepsUntil is when waitingLoop will look at the heap again if nobody tells it to. It is zero if the
	// loop is about to look.
	sleepsUntil time.Time
	stopped     bool
	dropped     uint64
}

// maxBatch is the number of due keys that the waiting loop takes from the heap at once.
const maxBatch = 64

// AddAfter adds item when duration has passed on the queue's clock, or at once if duration is not
// positive. If item is waiting already, the earlier time counts. It never blocks, and takes O(log n)
// time for n waiting keys, on average constant time if they are due in no particular order. An Add of
// a waiting item does not cancel its waiting. An item that would be due more than 292 years after the
// first of those that wait was added never comes. After shutdown AddAfter does nothing.
func (q *delayingType[T]) AddAfter(item T, duration time.Duration) {
	if q.ShuttingDown() {
		return
	}
	q.retries.Add(1)
	q.retriesMetric.Inc()
	if duration <= 0 {
		q.Add(item)
		return
	}
	if q.wait(item, keytable.HashOf(item), q.clock.Now(), duration) {
		q.notify()
	}
}

// wait makes item wait, and returns whether the waiting loop must be told.
func (q *delayingType[T]) wait(item T, h keytable.Hash, now time.Time, d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped || !q.waiting.put(h, item, now, d) {
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
	default: // The loop has not seen the last one yet.
	}
}

// waitingLoop adds keys to the queue below when they are due, and returns when none waits any more.
func (q *delayingType[T]) waitingLoop() {
	timer := q.clock.NewTimer(alarm.MaxSleep)
	defer timer.Stop()
	for {
		due, next, ok := q.takeDue()
		if !ok {
			return
		}
		if len(due) > 0 {
			q.addDue(due)
			clear(due)
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

// setAlarm makes timer fire at next, or returns false if that is not after now.
func (q *delayingType[T]) setAlarm(timer clock.Timer, next time.Time) bool {
	_, isReal := q.clock.(steadyClock)
	return alarm.Set(timer, isReal, func() time.Duration { return next.Sub(q.clock.Now()) })
}

// takeDue takes up to maxBatch due keys from the heap. If there is none, it returns when to look again.
// It returns false if no key waits, and then the loop counts as ended.
func (q *delayingType[T]) takeDue() (due []keytable.Hashed[T], next time.Time, ok bool) {
	if q.ShuttingDown() {
		// Whoever shut down the queue below may not have known this one.
		q.stopWaiting()
	}
	now := q.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moving = q.waiting.popDue(now, q.moving[:0])
	q.sleepsUntil = time.Time{}
	if len(q.moving) > 0 {
		return q.moving, now, true
	}
	if q.waiting.len() == 0 {
		q.looping = false
		return nil, now, false
	}
	q.sleepsUntil = now.Add(min(alarm.MaxSleep, q.waiting.untilNext(now)))
	return nil, q.sleepsUntil, true
}

// addDue adds keys to the queue below. Those that a shutdown makes it ignore count as dropped.
func (q *delayingType[T]) addDue(keys []keytable.Hashed[T]) {
	added := 0
	if q.fifo != nil {
		added = q.fifo.addAll(keys)
	} else {
		for added < len(keys) && !q.ShuttingDown() {
			q.Add(keys[added].Key)
			added++
		}
	}
	if added < len(keys) {
		q.mu.Lock()
		q.dropped += uint64(len(keys) - added)
		q.mu.Unlock()
	}
}

// ShutDown makes the queue ignore what is added from now on, and drops the keys that still wait for
// their time; [Stats].Dropped tells how many. Keys that are queued are still handed out. Drains that
// wait return. ShutDown may be called any number of times. It waits for the goroutines of the queue,
// which end at once.
func (q *delayingType[T]) ShutDown() {
	q.stopWaiting()
	q.Extended.ShutDown()
	q.loop.Wait()
}

// ShutDownWithDrain is ShutDown that waits until nothing is queued and nothing is being processed. The
// keys that still wait for their time are dropped before the wait and not after it.
func (q *delayingType[T]) ShutDownWithDrain() {
	q.stopWaiting()
	q.Extended.ShutDownWithDrain()
	q.loop.Wait()
}

// ShutDownContext is ShutDownWithDrain that waits no longer than until ctx is done. See
// [Extended].ShutDownContext for what it returns.
func (q *delayingType[T]) ShutDownContext(ctx context.Context) error {
	q.stopWaiting()
	err := q.Extended.ShutDownContext(ctx)
	q.loop.Wait()
	return err
}

// stopWaiting drops all waiting keys, lets no other wait, and so ends the waiting loop.
func (q *delayingType[T]) stopWaiting() {
	q.mu.Lock()
	n := q.waiting.clear()
	q.stopped = true
	q.dropped += uint64(n)
	q.mu.Unlock()
	q.notify()
	if n > 0 {
		q.logger.Info("Dropped keys that were waiting for their time, because the queue is shut down", "keys", n)
	}
}

// Stats returns a snapshot of the queue. It takes constant time.
func (q *delayingType[T]) Stats() Stats {
	// A key that goes on to the queue below or comes back from there meanwhile is counted twice rather
	// than not at all: a program may take a queue without any key for a sign that it is done.
	before := q.numWaiting()
	st := q.Extended.Stats()
	q.addStats(&st, before)
	return st
}

// ownStats are the Stats of this layer alone.
func (q *delayingType[T]) ownStats() Stats {
	st := Stats{ShuttingDown: q.ShuttingDown()}
	q.addStats(&st, 0)
	return st
}

// addStats adds to the stats of the queue below, before which a number of keys was seen waiting.
func (q *delayingType[T]) addStats(st *Stats, seenWaiting int) {
	st.Waiting += max(seenWaiting, q.numWaiting())
	if q.name != "" {
		st.Name = q.name
	}
	st.Retries += q.retries.Load()
	q.mu.Lock()
	defer q.mu.Unlock()
	st.Dropped += q.dropped
}

func (q *delayingType[T]) numWaiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.len() + len(q.moving)
}
