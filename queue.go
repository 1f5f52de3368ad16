package workqueue

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/notes"
	"github.com/keyedqueue/workqueue/internal/observe"
	"k8s.io/utils/clock"
)

// TypedInterface is a queue of keys. All methods are safe for concurrent use. In this project's queues a key
// that cannot be hashed, or is not equal to itself (NaN), makes them panic, and leaves the queue unharmed.
type TypedInterface[T comparable] interface {
	// Add queues item, at its Done if a worker holds it. It does nothing for a queued item, and after shutdown.
	Add(item T)
	// Len returns the number of queued keys.
	Len() int
	// Get blocks until a key is queued and hands it to the caller, who must call Done with it. After shutdown it
	// returns shutdown = true when nothing is queued, even while workers hold keys that Done will queue.
	Get() (item T, shutdown bool)
	// Done ends the caller's work on an item from Get.
	Done(item T)
	// ShutDown makes the queue ignore adds, drop keys that wait for their time, and hand out what is queued. It
	// ends a drain. Further calls of it and the other ShutDown methods do no harm.
	ShutDown()
	// ShutDownWithDrain is ShutDown that waits until no key is queued or held. If keys are queued, and for 10 s
	// none is held or taken, a queue of this package logs how many are left, drops them and returns.
	ShutDownWithDrain()
	// ShuttingDown reports whether a ShutDown method was called.
	ShuttingDown() bool
}

// TypedQueueConfig configures [NewTypedWithConfig]. Its zero value is a FIFO queue without metrics.
type TypedQueueConfig[T comparable] struct {
	// Name is the queue's name in its metrics. Without a name it has none.
	Name string

	// MetricsProvider makes the metrics. Nil means that of SetProvider.
	MetricsProvider MetricsProvider

	// Clock is where all times come from. Nil means the real clock, or that of a testing/synctest bubble.
	Clock clock.WithTicker

	// Queue decides the order of the queued keys. Nil means first in, first out, and is fastest.
	Queue Queue[T]
}

// NewTyped returns a FIFO queue without metrics.
func NewTyped[T comparable]() *Typed[T] {
	return NewTypedWithConfig(TypedQueueConfig[T]{})
}

// NewTypedWithConfig returns a queue configured by config. With the metrics of a provider that is no
// [StatsProvider] it has a goroutine until shutdown.
func NewTypedWithConfig[T comparable](config TypedQueueConfig[T]) *Typed[T] {
	return newQueueWithConfig(config, unfinishedWorkUpdatePeriod)
}

// unfinishedWorkUpdatePeriod is how often the metrics that depend on the time are pushed.
const unfinishedWorkUpdatePeriod = 500 * time.Millisecond

// newQueueWithConfig is what client-go's tests call.
func newQueueWithConfig[T comparable](config TypedQueueConfig[T], updatePeriod time.Duration) *Typed[T] {
	provider := providerFor(config.Name, config.MetricsProvider)
	q := newQueue(config, provider, updatePeriod)
	watch(config.Name, provider, q.Stats)
	inspect[T](q, config.Name, provider)
	return q
}

// newQueue builds a queue whose Stats no provider watches yet. The layers of a queue must have the same
// provider, and SetProvider may be called while they are built, so it does not look for the global one.
func newQueue[T comparable](config TypedQueueConfig[T], provider MetricsProvider, updatePeriod time.Duration) *Typed[T] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	q := &Typed[T]{name: config.Name, clock: config.Clock, custom: config.Queue}
	q.observer = newObserver(config.Name, provider, config.Clock)
	q.ticker.Start(q.observer, updatePeriod, q.refreshMetrics)
	return q
}

// Typed is the queue that the package comment describes. Add, Get and Done take constant time, and do not
// allocate while the number of keys stays about the same. A queue without keys has little memory. Without
// metrics it has no goroutine, and is collected without shutdown.
type Typed[T comparable] struct {
	Unimplemented[T]

	name       string
	clock      clock.WithTicker
	ticker     observe.Ticker
	logger     *logr.Logger // of a drain; nil means slog.Default
	leftLogged atomic.Bool  // how many keys a drain leaves
	// custom and observer are used under the lock. No foreign code runs under it but that of a user's Queue, of
	// push metrics and of the clock.
	custom   Queue[T]          // nil without
	observer *observe.Observer // nil without metrics

	// shuttingDown is written under the lock and read without.
	shuttingDown atomic.Bool

	// mu is the lock, and what it guards.
	mu struct {
		gate.Gate

		// keys has a slot for every key that is dirty or processing, and for no other.
		keys keytable.Table[T, sets]
		// ready has the keys that are dirty and not processing, in the order in which they became so. With a
		// custom Queue it is empty, and that has them.
		ready ring[keytable.Slot]
		// notes are about the keys that are marked as noted. See causes.go.
		notes notes.Notes[Causes]
		// processing counts the held keys, and again those of them that are dirty. onHold and againOnHold count
		// how many of these are on hold.
		processing, again, onHold, againOnHold int

		// dropping: DropQueued was called, so nothing is queued any more.
		dropping bool
		// idleSince is when a drain began, or when it has last seen that the last held key was Done.
		idleSince time.Time

		adds, dropped, unmatchedDones uint64
	}
}

// sets says in which of dirty and processing a key is. Four marks stand beside them.
//
//	absent ──Add──▶ queued ──Get──▶ processing ──Done──▶ absent
//	                  ▲                 │ Add
//	                  │                 ▼
//	                  └─────Done── processing and dirty
type sets uint8

const (
	dirty      sets = 1 << iota // needs processing
	processing                  // is held by a worker
	noted                       // has a note: causes, or somebody who waits for the next add
	quiet                       // has been added since a worker got it, but only quietly
	onHold                      // is processing, and PutOnHold was called
	retried                     // is processing, and dirty only because a retry has come due
)

type entry[T comparable] = keytable.Entry[T, sets]

// unlock ends every critical section: see [gate.Gate].
func (q *Typed[T]) unlock() {
	if q.mu.Watched() {
		q.notifyAndUnlock()
		return
	}
	q.mu.UnlockAndSend()
}

func (q *Typed[T]) notifyAndUnlock() {
	defer q.mu.UnlockAndSend()
	n := q.lenLocked()
	if n > 0 || q.shuttingDown.Load() {
		q.mu.Wake()
	}
	if n == 0 && q.mu.processing == 0 {
		q.mu.EndDrain(nil)
	}
}

// See [TypedInterface].
func (q *Typed[T]) Add(item T) {
	h := keytable.HashOf(item)
	q.mu.Lock()
	defer q.unlock()
	q.addLocked(h, item, 0)
}

// addDue adds keys that have come due, and returns how many: fewer than all if the queue is shutting down. A
// retry that comes due while its key is held is quiet. Otherwise a handler that returns an error when it is
// interrupted would be interrupted by its own retries.
func (q *Typed[T]) addDue(keys []dueKey[T]) int {
	q.mu.Lock()
	defer q.unlock()
	for i, due := range keys {
		var marks sets
		if due.onlyRetry {
			marks = quiet | retried
		}
		if _, k := q.addLocked(due.hash, due.key, marks); k == nil {
			return i
		}
	}
	return len(keys)
}

// takeBackRetry cancels the next hand-out of a held key that is dirty only because of a retry.
func (q *Typed[T]) takeBackRetry(h keytable.Hash, item T) {
	q.mu.Lock()
	defer q.unlock()
	if s, k := q.mu.keys.Find(h, item); k != nil && k.Value&retried != 0 {
		if k.Value&onHold != 0 {
			q.countAgainOnHoldLocked(-1)
		}
		q.cancelLocked(s, k)
	}
}

// addLocked is Add. Marks are quiet, retried or both. A held key has those that every add since its hand-out
// had. It returns nil if the queue is shutting down.
func (q *Typed[T]) addLocked(h keytable.Hash, item T, marks sets) (keytable.Slot, *entry[T]) {
	if q.shuttingDown.Load() {
		return keytable.None, nil
	}
	s, k, inserted := q.mu.keys.FindOrInsert(h, item)
	if k.Value&(processing|dirty) == processing {
		k.Value |= marks
	} else {
		k.Value &^= (quiet | retried) &^ marks
	}
	if marks&quiet == 0 && k.Value&noted != 0 {
		q.mu.notes.Added(s)
	}
	switch {
	case k.Value&dirty != 0:
		if q.custom != nil && k.Value&processing == 0 {
			q.custom.Touch(k.Key)
		}
		return s, k
	case inserted:
		q.pushLocked(s, k)
	}
	q.markDirtyLocked(s, k)
	return s, k
}

func (q *Typed[T]) markDirtyLocked(s keytable.Slot, k *entry[T]) {
	k.Value |= dirty
	q.mu.adds++
	if q.observer != nil {
		q.observer.Added(s, q.observer.Now())
	}
	if k.Value&processing != 0 {
		q.mu.again++
		if k.Value&onHold != 0 {
			q.countAgainOnHoldLocked(1)
		}
	}
}

// pushLocked puts the key at s into line.
func (q *Typed[T]) pushLocked(s keytable.Slot, k *entry[T]) {
	if q.custom == nil {
		q.mu.ready.push(s)
	} else {
		q.custom.Push(k.Key)
	}
}

// See [TypedInterface].
func (q *Typed[T]) Len() int {
	q.mu.Lock()
	defer q.unlock()
	return q.lenLocked()
}

func (q *Typed[T]) lenLocked() int {
	if q.custom != nil {
		return q.custom.Len()
	}
	return q.mu.ready.n
}

// See [TypedInterface].
func (q *Typed[T]) Get() (item T, shutdown bool) {
	item, err := q.getUntil(nil, nil)
	return item, err != nil
}

// See [Extended].
func (q *Typed[T]) GetContext(ctx context.Context) (item T, err error) {
	// Methods of ctx are foreign code, which must not run under the lock.
	if err := ctx.Err(); err != nil {
		return item, err
	}
	item, err = q.getUntil(ctx.Done(), nil)
	return item, gate.PublicError(ctx, err)
}

// See [Extended]. Failures are zero.
func (q *Typed[T]) Next(ctx context.Context) (h HandOut[T], err error) {
	if err := ctx.Err(); err != nil {
		return h, err
	}
	h.Key, err = q.getUntil(ctx.Done(), &h)
	return h, gate.PublicError(ctx, err)
}

// getUntil waits for a key, and describes it in h, unless that is nil. It returns gate.ErrContextDone if done
// is closed first.
func (q *Typed[T]) getUntil(done <-chan struct{}, h *HandOut[T]) (item T, err error) {
	q.mu.Lock()
	defer q.unlock()
	for {
		if s, k := q.popLocked(); k != nil {
			q.takeLocked(s, k)
			if h != nil {
				h.AddedAt, h.HasCauses = q.cameAtLocked(s), q.causesLocked(s, k) != nil
			}
			return k.Key, nil
		}
		if q.shuttingDown.Load() {
			return item, ErrShutDown
		}
		if !q.mu.Sleep(done) {
			return item, gate.ErrContextDone
		}
	}
}

// popLocked takes the next key from the line. It returns nil if the line is empty.
func (q *Typed[T]) popLocked() (keytable.Slot, *entry[T]) {
	if q.mu.ready.n > 0 {
		if q.mu.ready.head.first%keytable.PreloadLen == 0 { // Once for several keys, for their Dones.
			q.mu.keys.Preload(q.mu.ready.ahead(keytable.PreloadLen))
		}
		s := q.mu.ready.pop()
		return s, q.mu.keys.At(s)
	}
	if q.custom != nil {
		return q.popCustomLocked()
	}
	return keytable.None, nil
}

// takeLocked gives the key at s, which was just popped, to a worker.
func (q *Typed[T]) takeLocked(s keytable.Slot, k *entry[T]) {
	if k.Value == 0 { // It is a custom Queue's own key, which was never added.
		q.markDirtyLocked(s, k)
	}
	if q.observer != nil {
		q.observer.Taken(s, q.observer.Now())
	}
	if k.Value&noted != 0 && q.mu.notes.Taken(s) {
		k.Value = processing | noted
	} else {
		k.Value = processing
	}
	q.mu.processing++
}

// See [TypedInterface]. For a key that no worker holds it only counts [Stats].UnmatchedDones.
func (q *Typed[T]) Done(item T) {
	h := keytable.HashOf(item)
	q.mu.Lock()
	defer q.unlock()
	s, k := q.mu.keys.Find(h, item)
	if k == nil || k.Value&processing == 0 {
		// Carrying on would queue a queued key a second time, and two workers would hold it
		// (kubernetes/kubernetes#141079).
		q.mu.unmatchedDones++
		return
	}
	if k.Value&onHold != 0 {
		q.countOnHoldLocked(k, -1)
	}
	if k.Value&dirty != 0 && q.mu.dropping {
		q.cancelLocked(s, k)
		q.mu.dropped++
	}
	if k.Value&dirty != 0 {
		q.pushLocked(s, k)
		if k.Value&noted != 0 && q.mu.notes.Done(s) {
			k.Value = dirty | noted
		} else {
			k.Value = dirty
		}
		q.mu.again--
	}
	q.mu.processing--
	if q.mu.processing == 0 && q.mu.Draining() {
		q.mu.idleSince = q.clock.Now()
	}
	q.observeFinishedLocked(s)
	if k.Value&dirty == 0 {
		q.deleteLocked(s, k)
	}
}

// cancelLocked makes the held key at s not dirty, so that its Done does not queue it.
func (q *Typed[T]) cancelLocked(s keytable.Slot, k *entry[T]) {
	k.Value &^= dirty | quiet | retried
	q.mu.again--
	if q.observer != nil {
		q.observer.Canceled(s)
	}
}

// deleteLocked gives back the slot s, whose key is in no line and not held: see [keytable.Table.Delete].
func (q *Typed[T]) deleteLocked(s keytable.Slot, k *entry[T]) {
	if k.Value&noted != 0 {
		q.mu.notes.Remove(s)
	}
	q.mu.keys.Delete(s)
	if q.observer != nil && !q.mu.keys.HasMemory(s) {
		q.observer.Release(s)
	}
}

func (q *Typed[T]) popCustomLocked() (keytable.Slot, *entry[T]) {
	for q.custom.Len() > 0 {
		item := q.custom.Pop()
		// A Queue may have keys of its own, which were never added. takeLocked marks them dirty.
		s, k, _ := q.mu.keys.FindOrInsert(keytable.HashOf(item), item)
		if k.Value&processing == 0 {
			return s, k
		}
		// A Queue that has a key twice must not make two workers hold it.
		k.Value &^= quiet | retried
		if k.Value&dirty == 0 {
			q.markDirtyLocked(s, k)
		}
	}
	return keytable.None, nil
}

// See [Extended].
func (q *Typed[T]) PutOnHold(key T) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.unlock()
	s, k := q.mu.keys.Find(h, key)
	if k == nil || k.Value&(processing|onHold) != processing {
		return
	}
	k.Value |= onHold
	q.countOnHoldLocked(k, 1)
	q.observeFinishedLocked(s)
}

// observeFinishedLocked counts the work on the key at s, unless that is counted already.
func (q *Typed[T]) observeFinishedLocked(s keytable.Slot) {
	if q.observer == nil {
		return
	}
	q.observer.Finished(s, q.observer.Now())
	if q.shuttingDown.Load() {
		q.observer.RefreshLast()
	}
}

// countOnHoldLocked counts that the key of k has been put on hold or, with -1, that it is Done.
func (q *Typed[T]) countOnHoldLocked(k *entry[T], n int) {
	q.mu.onHold += n
	if k.Value&dirty != 0 {
		q.countAgainOnHoldLocked(n)
	}
}

// countAgainOnHoldLocked counts a key on hold that was added again, and takes it out of the depth.
func (q *Typed[T]) countAgainOnHoldLocked(n int) {
	q.mu.againOnHold += n
	if q.observer != nil {
		q.observer.LeaveDepth(n)
	}
}
