package workqueue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/drain"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/internal/spin"
	"k8s.io/utils/clock"
)

// Interface is a [TypedInterface] of keys of any type.
//
// Deprecated: Use TypedInterface.
type Interface TypedInterface[any]

// TypedInterface is a queue of keys, in which a key is at most once and which hands a key to at most
// one worker at a time. The package comment tells a key's life.
//
// All methods are safe for concurrent use.
type TypedInterface[T comparable] interface {
	// Add says that item needs processing. It does nothing if item is queued already, or has been
	// added since the worker that now holds it got it. After shutdown it does nothing.
	Add(item T)
	// Len returns the number of keys that are queued, without those that are being processed.
	Len() int
	// Get blocks until a key is queued and hands it to the caller, who must call Done with it. After
	// shutdown it hands out what is still queued, and then returns shutdown = true without blocking.
	Get() (item T, shutdown bool)
	// Done says that the caller is finished with an item from Get. If the item was added in the
	// meantime, it is queued again.
	Done(item T)
	// ShutDown makes the queue ignore what is added from now on, and makes a ShutDownWithDrain that
	// waits return.
	ShutDown()
	// ShutDownWithDrain is ShutDown that waits until every queued key has been handed out and every
	// key that was handed out is Done.
	ShutDownWithDrain()
	// ShuttingDown reports whether one of the ShutDown methods has been called.
	ShuttingDown() bool
}

// QueueConfig is a [TypedQueueConfig] of keys of any type.
//
// Deprecated: Use TypedQueueConfig.
type QueueConfig = TypedQueueConfig[any]

// TypedQueueConfig tells [NewTypedWithConfig] what to build. The zero config is a FIFO queue without
// metrics on the real clock.
type TypedQueueConfig[T comparable] struct {
	// Name is the queue's name in its metrics. A queue without a name has no metrics, and never
	// reads the clock.
	Name string

	// MetricsProvider makes the queue's metrics. Nil means the one of SetProvider.
	MetricsProvider MetricsProvider

	// Clock is where all times come from. Nil means the real clock.
	Clock clock.WithTicker

	// Queue decides the order of the queued keys. Nil means first in, first out, which is much
	// faster than any Queue, DefaultQueue included, because it needs no keys of its own.
	Queue Queue[T]
}

// New returns a FIFO queue.
//
// Deprecated: Use NewTyped.
func New() *Type { return NewTyped[any]() }

// NewTyped returns a FIFO queue without metrics. It starts no goroutine, and a queue that is no
// longer referred to needs no ShutDown to be collected.
func NewTyped[T comparable]() *Typed[T] {
	return NewTypedWithConfig(TypedQueueConfig[T]{})
}

// NewWithConfig returns a queue as config tells.
//
// Deprecated: Use NewTypedWithConfig.
func NewWithConfig(config QueueConfig) *Type { return NewTypedWithConfig(config) }

// NewTypedWithConfig returns a queue as config tells. Only a queue with a name and a provider of
// metrics starts a goroutine, which refreshes two of its metrics every 500 ms until shutdown.
func NewTypedWithConfig[T comparable](config TypedQueueConfig[T]) *Typed[T] {
	return newQueueWithConfig(config, unfinishedWorkUpdatePeriod)
}

// NewNamed returns a FIFO queue with metrics of that name.
//
// Deprecated: Use NewTypedWithConfig.
func NewNamed(name string) *Type { return NewWithConfig(QueueConfig{Name: name}) }

// unfinishedWorkUpdatePeriod is how often the metrics that depend on the time are pushed.
const unfinishedWorkUpdatePeriod = 500 * time.Millisecond

func newQueueWithConfig[T comparable](config TypedQueueConfig[T], updatePeriod time.Duration) *Typed[T] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	q := &Typed[T]{
		name:     config.Name,
		observer: newObserver(config.Name, config.MetricsProvider, config.Clock),
		wakeUps:  make(chan struct{}, 1),
		order:    config.Queue,
	}
	q.guarded = q.order != nil || q.observer != nil && q.observer.RunsForeignCode() || keytable.MayPanic[T]()
	q.ticker.Start(q.observer, updatePeriod, q.refreshMetrics)
	watch(config.Name, config.MetricsProvider, q.Stats)
	return q
}

// Type is a [Typed] of keys of any type.
//
// Deprecated: Use Typed.
type Type = Typed[any]

// Typed is a queue as the package comment describes it. It is made by [NewTyped] or
// [NewTypedWithConfig]; its zero value is not usable.
//
// Add, Get and Done take constant time and, once the queue has seen as many keys as it holds, no
// memory. A key that cannot be hashed or is not equal to itself (NaN) makes the method that it is
// passed to panic, and leaves the queue as it was.
type Typed[T comparable] struct {
	name     string
	observer *observe.Observer // nil if nobody wants to know
	ticker   observe.Ticker
	// guarded tells that code that may panic runs under the lock.
	guarded bool

	// shuttingDown is written under mu and read without.
	shuttingDown atomic.Bool

	// wakeUps carries at most one wake-up for the getters that sleep. See notifyAndUnlock.
	wakeUps chan struct{}

	// mu guards all that follows. Methods of order, of the metrics and of their clock are called under
	// it, and no other code that is not ours. Add, Get and Done try for it as package spin does, if several
	// keys are held; that is written out in each, as unlock is and for the same reason.
	mu sync.Mutex

	// keys has a slot for every key that is dirty or processing, and for no other.
	keys keytable.Table[T, keyState]
	// ready are the keys that are dirty and not processing, in the order in which they became so. It
	// is not used if order is not nil; then order has these keys.
	ready ring[keytable.Slot]
	order Queue[T]
	// queued and processing count the keys that wait for a worker, and those that workers hold; again
	// counts those of the latter that are dirty.
	queued, processing, again int
	// latest is the key that was handed out last. Its Hash is called without mu.
	latest keytable.Latest[T]

	// watchers is sleeping, and one more if drain is not nil: those who may have to be told something.
	watchers int
	// sleeping counts the getters that wait for a wake-up, wakeUpPending tells that one is on its way.
	sleeping      int
	wakeUpPending bool
	// drain, unless nil, is what the callers of ShutDownContext wait for.
	drain *drain.Drain

	adds           uint64
	unmatchedDones uint64
}

// keyState tells in which of the sets dirty and processing a key is.
type keyState uint8

const (
	dirty      keyState = 1 << iota // needs processing
	processing                      // is held by a worker
)

type entry[T comparable] = keytable.Entry[T, keyState]

// Add says that item needs processing. If it is queued already, or held by a worker and added since,
// Add does nothing; if a worker holds it, it is queued when that worker is Done. After shutdown Add
// does nothing.
func (q *Typed[T]) Add(item T) {
	h := keytable.HashOf(item)
	if !q.latest.Several() || !spin.TryLock(&q.mu) {
		q.mu.Lock()
	}
	if q.guarded {
		q.addGuarded(h, item)
		return
	}
	q.addLocked(h, item)
	if q.watchers == 0 {
		q.mu.Unlock()
	} else {
		q.notifyAndUnlock()
	}
}

func (q *Typed[T]) addGuarded(h keytable.Hash, item T) {
	defer q.unlock()
	q.addLocked(h, item)
}

// addAll adds keys under one lock, and returns how many were not ignored because of a shutdown: all or
// none.
func (q *Typed[T]) addAll(keys []keytable.Hashed[T]) int {
	q.mu.Lock()
	defer q.unlock()
	q.keys.PreloadKeys(keys)
	for i, k := range keys {
		if !q.addLocked(k.Hash, k.Key) {
			return i
		}
	}
	return len(keys)
}

// addLocked is Add. It returns false if the queue is shutting down.
func (q *Typed[T]) addLocked(h keytable.Hash, item T) bool {
	if q.shuttingDown.Load() {
		return false
	}
	s, k, inserted := q.keys.FindOrInsert(h, item)
	if k.Value&dirty != 0 {
		if q.order != nil && k.Value&processing == 0 {
			q.order.Touch(item)
		}
		return true
	}
	if inserted {
		q.pushLocked(s, k)
	}
	q.markDirtyLocked(s, k)
	return true
}

func (q *Typed[T]) markDirtyLocked(s keytable.Slot, k *entry[T]) {
	k.Value |= dirty
	q.adds++
	if k.Value&processing != 0 {
		q.again++
	}
	if q.observer != nil {
		q.observer.Added(s, q.observer.Now())
	}
}

// pushLocked puts the key at s into the line.
func (q *Typed[T]) pushLocked(s keytable.Slot, k *entry[T]) {
	if q.order == nil {
		q.ready.push(s)
	} else {
		q.pushToOrderLocked(s, k)
	}
	q.queued++
}

// pushToOrderLocked is pushLocked with a Queue. If that panics, the key loses its slot, unless a worker holds
// it.
func (q *Typed[T]) pushToOrderLocked(s keytable.Slot, k *entry[T]) {
	pushed := false
	defer func() {
		if !pushed && k.Value == 0 {
			q.keys.Delete(s)
		}
	}()
	q.order.Push(k.Key)
	pushed = true
}

// Len returns the number of queued keys, without those that are being processed. Other goroutines may
// have changed it by the time the caller looks at it.
func (q *Typed[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lenLocked()
}

func (q *Typed[T]) lenLocked() int {
	if q.order != nil {
		return q.order.Len()
	}
	return q.queued
}

// Get blocks until a key is queued, and hands it to the caller, who must call Done with it. After
// shutdown it hands out the keys that are still queued, and then returns shutdown = true without
// blocking, also while other workers hold keys that will be queued again.
func (q *Typed[T]) Get() (item T, shutdown bool) {
	item, err := q.get(context.Background())
	return item, err != nil
}

// GetContext is Get that gives up when ctx is done, also if keys are queued: then it takes none and
// returns ctx.Err(). After shutdown, when nothing is queued, it returns [ErrShutDown].
func (q *Typed[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	return q.get(ctx)
}

// get waits for a key until ctx is done.
func (q *Typed[T]) get(ctx context.Context) (item T, err error) {
	if !q.latest.Several() || !spin.TryLock(&q.mu) {
		q.mu.Lock()
	}
	if q.guarded {
		return q.getGuarded(ctx)
	}
	item, err = q.getLocked(ctx, q.nowLocked())
	if q.watchers == 0 {
		q.mu.Unlock()
	} else {
		q.notifyAndUnlock()
	}
	return item, err
}

func (q *Typed[T]) getGuarded(ctx context.Context) (item T, err error) {
	defer q.unlock()
	return q.getLocked(ctx, q.nowLocked())
}

// getLocked is get at a time that was just read.
func (q *Typed[T]) getLocked(ctx context.Context, now time.Duration) (item T, err error) {
	for {
		if s, k := q.popLocked(); k != nil {
			return q.takeLocked(s, k, now), nil
		}
		if q.shuttingDown.Load() {
			return item, ErrShutDown
		}
		if err := q.sleepLocked(ctx); err != nil {
			return item, err
		}
		now = q.nowLocked()
	}
}

// nowLocked returns the time in the observer's terms, which nobody wants to know if there is none.
func (q *Typed[T]) nowLocked() time.Duration {
	if q.observer == nil {
		return 0
	}
	return q.observer.Now()
}

// popLocked takes the next key from the line, or returns nil if there is none.
func (q *Typed[T]) popLocked() (keytable.Slot, *entry[T]) {
	if q.order == nil {
		if q.queued == 0 {
			return keytable.None, nil
		}
		if q.ready.first%keytable.PreloadLen == 0 { // Done will look for these keys.
			q.keys.Preload(q.ready.ahead(keytable.PreloadLen))
		}
		s := q.ready.pop()
		return s, q.keys.At(s)
	}
	for q.order.Len() > 0 {
		item := q.order.Pop()
		s, k, inserted := q.keys.FindOrInsert(keytable.HashOf(item), item)
		if inserted {
			// A Queue that has keys of its own. takeLocked treats this one as if it had been added.
			q.queued++
		}
		if k.Value&processing == 0 {
			return s, k
		}
		// A Queue that has a key twice must not make two workers hold it.
		if k.Value&dirty == 0 {
			q.markDirtyLocked(s, k)
		}
	}
	return keytable.None, nil
}

// takeLocked hands out the key at s, which was just popped.
func (q *Typed[T]) takeLocked(s keytable.Slot, k *entry[T], now time.Duration) T {
	unknown := k.Value == 0
	k.Value = processing
	q.queued--
	q.processing++
	q.latest.Took(s, q.processing)
	if unknown {
		q.adds++
	}
	switch {
	case q.observer == nil:
	case q.guarded:
		q.observeTakeGuarded(s, k, now, unknown)
	default: // A queue that is not guarded has no keys that it does not know.
		q.observer.Taken(s, now)
	}
	return k.Key
}

// observeTakeGuarded tells the observer that the key at s is handed out. If a metric panics, the caller of Get
// does not get the key, so it is queued again.
func (q *Typed[T]) observeTakeGuarded(s keytable.Slot, k *entry[T], now time.Duration, unknown bool) {
	observed := false
	defer func() {
		if !observed {
			q.observer.Untake(s)
			k.Value = dirty | processing
			q.again++
			q.finishLocked(s, k)
		}
	}()
	if unknown {
		q.observer.Added(s, now)
	}
	q.observer.Taken(s, now)
	observed = true
}
