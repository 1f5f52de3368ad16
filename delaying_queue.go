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

// TypedDelayingInterface is a queue to which a key can be added for later.
type TypedDelayingInterface[T comparable] interface {
	TypedInterface[T]
	// AddAfter adds item when duration has passed, never earlier, and at once if it is not positive. If item
	// waits already, the earlier time counts. A waiting item can be added as well, and then comes twice.
	AddAfter(item T, duration time.Duration)
}

// TypedDelayingQueueConfig configures [NewTypedDelayingQueueWithConfig].
type TypedDelayingQueueConfig[T comparable] struct {
	// Logger, unless nil, logs how many waiting keys a shutdown drops. It, or else [slog.Default], logs how many
	// queued keys a drain leaves. It must not shut the queue down.
	Logger *logr.Logger

	// Name, MetricsProvider and Clock are those of [TypedQueueConfig].
	Name            string
	MetricsProvider MetricsProvider
	Clock           clock.WithTicker

	// Queue is where due keys go. Nil means one with the fields above, which have no effect on another.
	// Unless it is a [Typed], a retry that has come due is not taken back.
	Queue TypedInterface[T]
}

// NewTypedDelayingQueue returns a delaying queue without metrics.
func NewTypedDelayingQueue[T comparable]() TypedDelayingInterface[T] {
	return NewTypedDelayingQueueWithConfig(TypedDelayingQueueConfig[T]{})
}

// NewTypedDelayingQueueWithConfig returns a delaying queue configured by config. It is an [Extended] if
// config.Queue is, or is nil.
func NewTypedDelayingQueueWithConfig[T comparable](config TypedDelayingQueueConfig[T]) TypedDelayingInterface[T] {
	provider := providerFor(config.Name, config.MetricsProvider)
	q, stats := newDelayingQueue(config, provider)
	watch(config.Name, provider, stats)
	inspect(q, config.Name, provider)
	return q
}

// newDelayingQueue builds a delaying queue, and returns what a provider may watch. Like newQueue it does not
// look for the global provider.
func newDelayingQueue[T comparable](config TypedDelayingQueueConfig[T], provider MetricsProvider) (q TypedDelayingInterface[T], stats func() Stats) {
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
	d := &delayingType[T]{TypedInterface: config.Queue, name: config.Name, logger: logr.Discard()}
	d.own, _ = config.Queue.(*Typed[T])
	d.retriesMetric = newRetriesMetric(config.Name, provider)
	d.loop = dueloop.New(config.Clock, d.moveDue)
	if config.Logger != nil {
		d.logger = *config.Logger
	}
	below, ok := config.Queue.(Extended[T])
	if !ok {
		return d, d.ownStats
	}
	all := &extendedDelayingType[T]{Extended: below, delayingType: d}
	if ownsQueue {
		return all, all.Stats
	}
	all.below = below
	return all, d.ownStats // What is below shows its own.
}

// delayingType puts AddAfter on top of any queue. The keys that wait for their time are in a heap. While a
// key waits, the goroutine of loop adds them to the queue below when they are due.
type delayingType[T comparable] struct {
	TypedInterface[T] // the queue below
	// own is the queue below, or nil if that is a user's. It is the concrete type on purpose: addDue of a user's
	// queue that embeds ours would bypass that queue's Add.
	own *Typed[T]

	name          string
	logger        logr.Logger
	retriesMetric CounterMetric
	loop          *dueloop.Loop

	// mu guards its fields and the loop's. Under it own alone is called, with the foreign code that runs under
	// own's lock. No other queue, clock or logger is.
	mu struct {
		sync.Mutex

		waiting dueHeap[T]
		// moving has keys that the loop has taken from the heap. A user's queue below may not have them yet.
		moving  []dueKey[T]
		stopped bool
		retries uint64
		dropped uint64
		// arrivals counts the keys that have begun to wait.
		arrivals uint64
	}
}

// extendedDelayingType is delayingType on top of an Extended, with the methods of one.
type extendedDelayingType[T comparable] struct {
	Extended[T] // the queue below
	*delayingType[T]
	below any // the same, or nil if this layer has made it
}

func (q *extendedDelayingType[T]) Below() any { return q.below }

// maxBatch is the number of due keys that moveDue takes from the heap under one lock.
const maxBatch = 64

func (d *delayingType[T]) AddAfter(item T, duration time.Duration) {
	d.addAfter(keytable.HashOf(item), item, duration, false)
}

// addAfter is AddAfter. isRetry marks it for takeBackRetry.
func (d *delayingType[T]) addAfter(h keytable.Hash, item T, duration time.Duration, isRetry bool) {
	if d.ShuttingDown() {
		return
	}
	d.retriesMetric.Inc()
	var now time.Duration
	if duration > 0 {
		now = d.loop.Now()
	}
	switch counted, wake := d.putWaiting(h, item, now, duration, isRetry); {
	case wake:
		d.loop.Wake()
	case counted && duration <= 0:
		d.Add(item)
	}
}

// putWaiting counts a call of AddAfter and, if there is a delay, puts item into the heap. It does not count
// if a shutdown has begun: the numbers of a queue that is shut down and empty do not change any more. Wake
// reports whether to wake the loop.
func (d *delayingType[T]) putWaiting(h keytable.Hash, item T, now, delay time.Duration, isRetry bool) (counted, wake bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.stopped {
		return false, false
	}
	d.mu.retries++
	if delay <= 0 {
		return true, false
	}
	before := d.mu.waiting.len()
	d.mu.waiting.put(h, item, now, delay, isRetry)
	d.mu.arrivals += uint64(d.mu.waiting.len() - before)
	return true, d.loop.TendLocked(d.mu.waiting.next())
}

// See retrier.
func (d *delayingType[T]) addRetry(h keytable.Hash, item T, delay time.Duration) {
	d.takeBackRetry(h, item)
	d.addAfter(h, item, delay, true)
}

// See retrier.
func (d *delayingType[T]) takeBackRetry(h keytable.Hash, item T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.waiting.takeBackRetry(h, item)
	if d.own != nil {
		d.own.takeBackRetry(h, item)
	}
	if d.loop.TendLocked(d.mu.waiting.next()) {
		d.loop.Wake()
	}
}

// moveDue adds some of the keys that are due to the queue below, and returns when to look again, if ever.
func (d *delayingType[T]) moveDue() (until time.Duration, ok bool) {
	due, until, ok := d.takeDue()
	for i, k := range due {
		if d.ShuttingDown() {
			d.countDropped(len(due) - i)
			return until, ok
		}
		d.Add(k.key) // A user's queue that is shut down meanwhile drops the key uncounted.
	}
	return until, ok
}

func (d *delayingType[T]) countDropped(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.dropped += uint64(n)
}

// takeDue moves up to maxBatch due keys from the heap to own, or else to moving, which it returns. Own gets
// them before the unlock, so takeBackRetry finds a retry in one or the other.
func (d *delayingType[T]) takeDue() (due []dueKey[T], until time.Duration, ok bool) {
	if d.ShuttingDown() {
		// The queue below may have been shut down without this one.
		d.logDropped(d.stopWaiting())
	}
	now := d.loop.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.mu.moving)
	d.mu.moving = d.mu.waiting.popDue(now, d.mu.moving[:0])
	next := d.mu.waiting.next()
	if len(d.mu.moving) > 0 {
		next = now // There may be more.
	}
	if d.own != nil && len(d.mu.moving) > 0 {
		d.mu.dropped += uint64(len(d.mu.moving) - d.own.addDue(d.mu.moving))
		clear(d.mu.moving)
		d.mu.moving = d.mu.moving[:0]
	}
	if until, ok = d.loop.PlanLocked(now, next); !ok {
		d.mu.moving = nil
	}
	return d.mu.moving, until, ok
}

// ShutDown drops the keys that still wait for their time. It waits for the goroutines of the queue, which end
// at once; so the configured Queue, Clock and Logger, which one may be calling, must not call it.
func (d *delayingType[T]) ShutDown() {
	defer d.logDropped(d.stopWaiting())
	d.TypedInterface.ShutDown()
	d.loop.Wait()
}

// ShutDownWithDrain drops the keys that still wait for their time before the wait and not after it.
func (d *delayingType[T]) ShutDownWithDrain() {
	defer d.logDropped(d.stopWaiting())
	d.TypedInterface.ShutDownWithDrain()
	d.loop.Wait()
}

func (q *extendedDelayingType[T]) ShutDown()          { q.delayingType.ShutDown() }
func (q *extendedDelayingType[T]) ShutDownWithDrain() { q.delayingType.ShutDownWithDrain() }

func (q *extendedDelayingType[T]) ShutDownContext(ctx context.Context) error {
	defer q.logDropped(q.stopWaiting())
	defer q.loop.Wait()
	return q.Extended.ShutDownContext(ctx)
}

// stopWaiting drops all waiting keys, returns how many, and lets no other wait. That ends the loop.
func (d *delayingType[T]) stopWaiting() int {
	defer d.loop.Wake()
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.mu.waiting.clear()
	d.mu.stopped = true
	d.mu.dropped += uint64(n)
	return n
}

func (d *delayingType[T]) logDropped(n int) {
	if n > 0 {
		d.logger.Info("Dropped keys that were waiting for their time, because the queue is shut down", "keys", n)
	}
}

func (q *extendedDelayingType[T]) Stats() Stats {
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
func (d *delayingType[T]) ownStats() Stats {
	waiting, _ := d.numWaiting()
	st := Stats{ShuttingDown: d.ShuttingDown(), Waiting: waiting}
	d.addStats(&st)
	return st
}

// addStats adds this layer's numbers to st, except Waiting.
func (d *delayingType[T]) addStats(st *Stats) {
	st.Name = cmp.Or(d.name, st.Name)
	d.mu.Lock()
	defer d.mu.Unlock()
	st.Retries += d.mu.retries
	st.Dropped += d.mu.dropped
}

// numWaiting returns how many keys wait, and how many have ever begun to wait.
func (d *delayingType[T]) numWaiting() (n int, arrivals uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.waiting.len() + len(d.mu.moving), d.mu.arrivals
}

func (q *extendedDelayingType[T]) Snapshot(limit int) Snapshot[T] {
	// In this order, a key that comes due meanwhile may be listed twice.
	waiting := q.copyWaiting(min(max(limit, 0), maxSnapshot))
	s := q.Extended.Snapshot(limit)
	s.Waiting = append(waiting, s.Waiting...)
	n, _ := q.numWaiting()
	s.Stats.Waiting += max(n, len(waiting))
	q.addStats(&s.Stats)
	return s
}

// copyWaiting returns up to limit of the keys that wait, in the order in which they come due.
func (d *delayingType[T]) copyWaiting(limit int) (keys []KeySnapshot[T]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for e := range keytable.Take(limit, d.mu.waiting.order.InOrder()) {
		keys = append(keys, d.snapshotWaitingLocked(e.Slot))
	}
	return keys
}

// SnapshotKeys yields the keys that wait, and those of the queue below.
func (q *extendedDelayingType[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
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

func (q *extendedDelayingType[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	above, waits := q.snapshotWaiting(key) // First: meanwhile the key may move to the queue below.
	if k, found = q.Extended.SnapshotKey(key); !found {
		above.Causes = k.Causes
		return above, waits
	}
	k.Due = above.Due
	return k, true
}

// snapshotWaiting returns what this layer knows of key. One on its way to the queue below counts as queued.
func (d *delayingType[T]) snapshotWaiting(key T) (k KeySnapshot[T], found bool) {
	h := keytable.HashOf(key)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, e := d.mu.waiting.keys.Find(h, key); e != nil {
		return d.snapshotWaitingLocked(s), true
	}
	k.Key = key
	if slices.ContainsFunc(d.mu.moving, func(m dueKey[T]) bool { return m.key == key }) {
		k.State = KeyQueued
	}
	return k, k.State != ""
}

func (d *delayingType[T]) snapshotWaitingLocked(s keytable.Slot) KeySnapshot[T] {
	k := d.mu.waiting.keys.At(s)
	due := d.loop.Time(time.Duration(d.mu.waiting.order.At(s).Rank))
	return KeySnapshot[T]{Key: k.Key, State: KeyWaiting, Since: d.loop.Time(k.Value.since.Duration()), Due: due}
}
