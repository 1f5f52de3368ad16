package workqueue

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
)

// Deprecated: Use TypedDelayingInterface.
type DelayingInterface TypedDelayingInterface[any]

// TypedDelayingInterface is a queue to which a key can be added for later.
type TypedDelayingInterface[T comparable] interface {
	TypedInterface[T]
	// AddAfter adds item when duration has passed, or at once if duration is not positive. If item waits
	// already, the earlier time counts. Until it comes due, item can be added as well, and then comes twice. In
	// the queues of this package AddAfter never blocks. After shutdown it does nothing.
	AddAfter(item T, duration time.Duration)
}

// Deprecated: Use TypedDelayingQueueConfig.
type DelayingQueueConfig = TypedDelayingQueueConfig[any]

// TypedDelayingQueueConfig configures [NewTypedDelayingQueueWithConfig].
type TypedDelayingQueueConfig[T comparable] struct {
	// Logger logs how many keys were still waiting at shutdown, without the queue's name. Nil means no log of
	// that. It also logs how many keys a drain has left because nobody takes them: by [slog.Default] if it is nil.
	// A shutdown waits for the goroutine that may call Logger, so Logger must not shut the queue down.
	Logger *logr.Logger

	// Name, MetricsProvider and Clock are those of [TypedQueueConfig].
	Name            string
	MetricsProvider MetricsProvider
	Clock           clock.WithTicker

	// Queue is where keys go when they are due. Nil means one from NewTypedWithConfig with the fields
	// above, which have no effect on a Queue that is given here.
	Queue TypedInterface[T]
}

// Deprecated: Use NewTypedDelayingQueue.
func NewDelayingQueue() DelayingInterface { return NewDelayingQueueWithConfig(DelayingQueueConfig{}) }

// NewTypedDelayingQueue returns a delaying queue without metrics. It has a goroutine only while a key waits.
func NewTypedDelayingQueue[T comparable]() TypedDelayingInterface[T] {
	return NewTypedDelayingQueueWithConfig(TypedDelayingQueueConfig[T]{})
}

// Deprecated: Use NewTypedDelayingQueueWithConfig.
func NewDelayingQueueWithConfig(config DelayingQueueConfig) DelayingInterface {
	return NewTypedDelayingQueueWithConfig(config)
}

// Deprecated: Use NewTypedDelayingQueue.
func TypedNewDelayingQueue[T comparable]() TypedDelayingInterface[T] {
	return NewTypedDelayingQueue[T]()
}

// NewTypedDelayingQueueWithConfig returns a delaying queue configured by config. The result is also an
// [Extended], whatever config.Queue is.
func NewTypedDelayingQueueWithConfig[T comparable](config TypedDelayingQueueConfig[T]) TypedDelayingInterface[T] {
	provider := providerFor(config.Name, config.MetricsProvider)
	q := newDelayingQueue(config, provider)
	registerInspector[T](q, config.Name, provider, config.Queue)
	return q
}

// newDelayingQueue builds a delaying queue. Like newQueue it does not look for the global provider.
func newDelayingQueue[T comparable](config TypedDelayingQueueConfig[T], provider MetricsProvider) TypedDelayingInterface[T] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	ownsQueue := config.Queue == nil
	if ownsQueue {
		below := TypedQueueConfig[T]{Name: config.Name, Clock: config.Clock}
		fifo := newQueue(below, provider, unfinishedWorkUpdatePeriod)
		fifo.logger = config.Logger
		config.Queue = fifo
	}
	q := &delayingType[T]{
		Extended:      Extend(config.Queue),
		name:          config.Name,
		retriesMetric: newRetriesMetric(config.Name, provider),
		logger:        logr.Discard(),
	}
	q.loop = dueloop.New(config.Clock, q.moveDue)
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

// Deprecated: Use NewTypedDelayingQueueWithConfig, with a Name and a Queue.
func NewDelayingQueueWithCustomQueue(q Interface, name string) DelayingInterface {
	return NewDelayingQueueWithConfig(DelayingQueueConfig{Name: name, Queue: q})
}

// Deprecated: Use NewTypedDelayingQueueWithConfig, with a Name.
func NewNamedDelayingQueue(name string) DelayingInterface {
	return NewDelayingQueueWithConfig(DelayingQueueConfig{Name: name})
}

// Deprecated: Use NewTypedDelayingQueueWithConfig, with a Name and a Clock.
func NewDelayingQueueWithCustomClock(clock clock.WithTicker, name string) DelayingInterface {
	return NewDelayingQueueWithConfig(DelayingQueueConfig{Name: name, Clock: clock})
}

// delayingType puts AddAfter on top of a queue. Keys wait in a heap. While there is one, the goroutine of
// loop adds them to the queue below when they are due.
type delayingType[T comparable] struct {
	Extended[T] // the queue below

	name          string
	logger        logr.Logger
	retriesMetric CounterMetric
	loop          *dueloop.Loop

	// mu guards its fields and the loop's. Under it no queue, clock, metric or logger is called.
	mu struct {
		sync.Mutex

		waiting dueHeap[T]
		// moving has keys that moveDue has taken from the heap, and may not have added to the queue below yet.
		moving  []keytable.Hashed[T]
		stopped bool
		retries uint64
		dropped uint64
		// arrivals counts the keys that have begun to wait.
		arrivals uint64
	}
}

// maxBatch is the number of due keys that moveDue takes from the heap under one lock.
const maxBatch = 64

func (q *delayingType[T]) AddAfter(item T, duration time.Duration) { q.addAfter(item, duration, false) }

// addAfter is AddAfter. With isRetry takeBackRetry can take item back.
func (q *delayingType[T]) addAfter(item T, duration time.Duration, isRetry bool) {
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
	if q.putWaiting(item, keytable.HashOf(item), q.loop.Now(), duration, isRetry) {
		q.loop.Wake()
	}
}

// countRetry counts a call of AddAfter. It returns false, and does not count, if a shutdown has begun: the
// numbers of a queue that is shut down and empty do not change any more.
func (q *delayingType[T]) countRetry() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.countRetryLocked()
}

func (q *delayingType[T]) countRetryLocked() bool {
	if !q.mu.stopped {
		q.mu.retries++
	}
	return !q.mu.stopped
}

// putWaiting counts a call of AddAfter and puts item into the heap. It reports whether to wake the loop.
func (q *delayingType[T]) putWaiting(item T, h keytable.Hash, now, d time.Duration, isRetry bool) (wake bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.countRetryLocked() {
		return false
	}
	before := q.mu.waiting.len()
	q.mu.waiting.put(h, item, now, d, isRetry)
	q.mu.arrivals += uint64(q.mu.waiting.len() - before)
	return q.loop.TendLocked(q.mu.waiting.next())
}

// takeBackRetry makes a key that is given up not come when the delay of its last failure is over, unless it was
// also added for later by others.
func (q *delayingType[T]) takeBackRetry(item T) {
	if q.dropRetry(item, keytable.HashOf(item)) {
		q.loop.Wake()
	}
}

func (q *delayingType[T]) dropRetry(item T, h keytable.Hash) (wake bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.waiting.takeBackRetry(h, item)
	return q.loop.TendLocked(q.mu.waiting.next())
}

// moveDue adds some of the keys that are due to the queue below, and returns when to look again, if ever.
func (q *delayingType[T]) moveDue() (until time.Duration, ok bool) {
	due, until, ok := q.takeDue()
	if len(due) > 0 {
		q.addDue(due)
	}
	return until, ok
}

// takeDue moves up to maxBatch due keys from the heap to moving, and returns them.
func (q *delayingType[T]) takeDue() (due []keytable.Hashed[T], until time.Duration, ok bool) {
	if q.ShuttingDown() {
		// The queue below may have been shut down without this one.
		q.logDropped(q.stopWaiting())
	}
	now := q.loop.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.mu.moving)
	q.mu.moving = q.mu.waiting.popDue(now, q.mu.moving[:0])
	next := q.mu.waiting.next()
	if len(q.mu.moving) > 0 {
		next = now // There may be more.
	}
	if until, ok = q.loop.PlanLocked(now, next); !ok {
		q.mu.moving = nil
	}
	return q.mu.moving, until, ok
}

// addDue adds keys that have come due to the queue below. If that is shut down, they count as dropped.
// (A foreign queue that is shut down during an Add drops that key uncounted.)
func (q *delayingType[T]) addDue(keys []keytable.Hashed[T]) {
	// Our own layer 1 takes a batch under one lock. It is no interface: a user's queue that embeds ours would
	// have the method too, and its own Add would be bypassed.
	if below, ok := q.Extended.(*Typed[T]); ok {
		keys = keys[below.addDue(keys):]
	}
	for len(keys) > 0 && !q.ShuttingDown() {
		q.Add(keys[0].Key)
		keys = keys[1:]
	}
	if len(keys) > 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.mu.dropped += uint64(len(keys))
	}
}

// ShutDown drops the keys that still wait for their time. It waits for the goroutines of the queue, which end
// at once; so the configured Queue, Clock and Logger, which one may be calling, must not call it.
func (q *delayingType[T]) ShutDown() {
	defer q.logDropped(q.stopWaiting())
	q.Extended.ShutDown()
	q.loop.Wait()
}

// ShutDownWithDrain drops the keys that still wait for their time before the wait and not after it.
func (q *delayingType[T]) ShutDownWithDrain() {
	defer q.logDropped(q.stopWaiting())
	q.Extended.ShutDownWithDrain()
	q.loop.Wait()
}

func (q *delayingType[T]) ShutDownContext(ctx context.Context) error {
	defer q.logDropped(q.stopWaiting())
	defer q.loop.Wait()
	return q.Extended.ShutDownContext(ctx)
}

// stopWaiting drops all waiting keys, returns how many, and lets no other wait. That ends the loop.
func (q *delayingType[T]) stopWaiting() int {
	defer q.loop.Wake()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.mu.waiting.clear()
	q.mu.stopped = true
	q.mu.dropped += uint64(n)
	return n
}

func (q *delayingType[T]) logDropped(n int) {
	if n > 0 {
		q.logger.Info("Dropped keys that were waiting for their time, because the queue is shut down", "keys", n)
	}
}

func (q *delayingType[T]) Stats() Stats {
	// A program may take a queue without keys for one that is done. So what began to wait while the queue below
	// was read is added: a key that moves meanwhile is counted, perhaps twice, and never missed.
	waiting, arrivals := q.numWaiting()
	st := q.Extended.Stats()
	_, later := q.numWaiting()
	st.Waiting += waiting + int(later-arrivals)
	q.addStats(&st)
	return st
}

// ownStats are the Stats of this layer alone.
func (q *delayingType[T]) ownStats() Stats {
	waiting, _ := q.numWaiting()
	st := Stats{ShuttingDown: q.ShuttingDown(), Waiting: waiting}
	q.addStats(&st)
	return st
}

// addStats adds this layer's numbers to st, except Waiting.
func (q *delayingType[T]) addStats(st *Stats) {
	st.Name = cmp.Or(q.name, st.Name)
	q.mu.Lock()
	defer q.mu.Unlock()
	st.Retries += q.mu.retries
	st.Dropped += q.mu.dropped
}

// numWaiting returns how many keys wait, and how many have ever begun to wait.
func (q *delayingType[T]) numWaiting() (n int, arrivals uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.waiting.len() + len(q.mu.moving), q.mu.arrivals
}

func (q *delayingType[T]) Snapshot(limit int) Snapshot[T] {
	// In this order, a key that comes due meanwhile may be listed twice.
	waiting := q.copyWaiting(min(max(limit, 0), maxSnapshot))
	s := q.Extended.Snapshot(limit)
	s.Waiting = append(waiting, s.Waiting...)
	n, _ := q.numWaiting()
	s.Stats.Waiting += max(n, len(waiting))
	q.addStats(&s.Stats)
	return s
}

// copyWaiting returns up to limit of the keys that wait, the one that is due first first.
func (q *delayingType[T]) copyWaiting(limit int) (keys []KeySnapshot[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := range keytable.Take(limit, q.mu.waiting.order.InOrder()) {
		keys = append(keys, q.snapshotWaitingLocked(e.Slot))
	}
	return keys
}

// SnapshotKeys yields the keys that wait, and those of the queue below.
func (q *delayingType[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	add := func(keys []KeySnapshot[T], s keytable.Slot) []KeySnapshot[T] {
		return append(keys, q.snapshotWaitingLocked(s))
	}
	waiting := keytable.InSteps(&q.mu.waiting.keys, q.mu.Lock, q.mu.Unlock, add)
	return func(yield func(KeySnapshot[T]) bool) {
		for _, keys := range []iter.Seq[KeySnapshot[T]]{waiting, q.Extended.SnapshotKeys()} {
			for k := range keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func (q *delayingType[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	above, waits := q.snapshotWaiting(key) // First: meanwhile the key may move to the queue below.
	if k, found = q.Extended.SnapshotKey(key); !found {
		above.Causes = k.Causes
		return above, waits
	}
	k.Due = above.Due
	return k, true
}

// snapshotWaiting returns what this layer knows of key. One on its way to the queue below counts as queued.
func (q *delayingType[T]) snapshotWaiting(key T) (k KeySnapshot[T], found bool) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, e := q.mu.waiting.keys.Find(h, key); e != nil {
		return q.snapshotWaitingLocked(s), true
	}
	k.Key = key
	if slices.ContainsFunc(q.mu.moving, func(m keytable.Hashed[T]) bool { return m.Key == key }) {
		k.State = KeyQueued
	}
	return k, k.State != ""
}

func (q *delayingType[T]) snapshotWaitingLocked(s keytable.Slot) KeySnapshot[T] {
	k := q.mu.waiting.keys.At(s)
	due := q.loop.Time(time.Duration(q.mu.waiting.order.At(s).Rank))
	return KeySnapshot[T]{Key: k.Key, State: KeyWaiting, Since: q.loop.Time(k.Value.since.Duration()), Due: due}
}
