package sharding

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Queue is a queue of those keys whose slots a [Member] holds.
//
//   - Add and AddAfter do nothing for a key of another replica: that one adds it too.
//   - Get hands out no key of a slot that the member does not hold, or is about to hand over.
//   - Done lets a slot move that waits for its last handler.
//   - Keys that come due, or are retried, after their slot has moved are dropped.
//
// All else is as in the queue that it was made of.
type Queue[T comparable] interface {
	workqueue.TypedRateLimitingInterface[T]
	workqueue.Extended[T]
	// Lease returns a context for the handler of a key that Get has returned. It is derived from ctx, carries the
	// [Epoch], and ends, with a cause, when somebody else may get the key: with ErrLeaseLost when the member's validity
	// ends, with ErrHandover when the slot is to move and HandoverTimeout has passed, with ErrLeft when Leave could not
	// wait. If the slot has moved since Get, the context has ended already. Package worker calls it; a program without
	// that package must call it, and the returned function when the handler has returned. For a key that is not held,
	// Lease returns ctx itself. It does not block.
	workqueue.Leaser[T]
	// Holds reports whether the member holds the key's slot now.
	Holds(key T) bool
	// KeysOfOthers returns how many adds and queued keys were dropped because the member did not hold their slots.
	KeysOfOthers() uint64
}

// NewQueue returns a queue that hands out those keys of inner whose slots the member holds. From now on inner must not be
// used by itself. The result is an [workqueue.Extended], and has the methods for priorities ([worker.PriorityQueue]),
// for removal ([workqueue.KeyRemover], [worker.KeyFinder]), for a pause and for reading keys ([workqueue.KeyReader])
// if inner has them. It is a [workqueue.CauseAdder] and a [workqueue.AddNotifier]. If inner is no CauseAdder,
// AddCause is Add. Its facts on the debug page are who holds which slots, and what moves.
//
// Several queues may share a member. It panics if config has no Keys, if T needs a Hash and there is none, or if FinishQueued
// is set and inner is no KeyReader.
func NewQueue[T comparable](inner workqueue.TypedRateLimitingInterface[T], member *Member, config QueueConfig[T]) Queue[T] {
	q := newQueue(inner, member, config)
	defer member.register(q)
	return q.withMethodsOf(inner)
}

// queue is a [Queue].
type queue[T comparable] struct {
	// Extended is the queue below, without its delays and limiter.
	workqueue.Extended[T]
	inner  workqueue.TypedRateLimitingInterface[T]
	member *Member
	keys   func(context.Context) ([]T, error)

	hasher hasher[T]
	seed   maphash.Seed // for tokens, if the hash is the user's
	cells  []cells

	// add adds a key with its priority, and priorityOf returns that of a key that is being handled. In a queue without
	// priorities they add it, and return zero.
	add          func(key T, priority int)
	priorityOf   func(key T) int
	listPriority int
	// finishes is the queue below if its keys are to be finished before a slot moves, otherwise nil.
	finishes workqueue.KeyReader[T]

	ofOthers atomic.Uint64

	mu struct {
		sync.Mutex
		// parked are keys that came out of the queue while their slot was stopping.
		parked map[int]map[T]parkedKey
		// unlisted are the slots that the member has got and whose keys are not listed yet.
		unlisted map[int]bool
		// listing: a goroutine lists.
		listing bool
	}
}

func newQueue[T comparable](inner workqueue.TypedRateLimitingInterface[T], member *Member, config QueueConfig[T]) *queue[T] {
	if config.Keys == nil {
		panic("sharding: QueueConfig.Keys is required")
	}
	h := hasher[T]{custom: config.Hash}
	if config.Hash == nil {
		var err error
		if h, err = newHasher[T](); err != nil {
			panic(err)
		}
	}
	q := &queue[T]{
		Extended: workqueue.Extend(workqueue.TypedInterface[T](inner)), inner: inner, member: member, keys: config.Keys,
		hasher: h, seed: maphash.MakeSeed(), cells: make([]cells, len(member.slots)),
		listPriority: config.ListPriority,
	}
	q.add = func(key T, _ int) { q.inner.Add(key) }
	q.priorityOf = func(T) int { return 0 }
	if p, ok := inner.(worker.PriorityQueue[T]); ok {
		q.add = func(key T, priority int) { p.AddWithPriority(key, priority, 0) }
		q.priorityOf = p.PriorityOf
	}
	if config.FinishQueued {
		reader, ok := inner.(workqueue.KeyReader[T])
		if !ok {
			panic(fmt.Sprintf("sharding: QueueConfig.FinishQueued needs a workqueue.KeyReader, not %T", inner))
		}
		q.finishes = reader
	}
	q.mu.parked = make(map[int]map[T]parkedKey)
	q.mu.unlisted = make(map[int]bool)
	return q
}

// parkedKey is how a key is to be added again.
type parkedKey struct {
	priority int
	causes   workqueue.Causes
}

// locate returns a key's slot, and its token in the slot's cells.
func (q *queue[T]) locate(key T) (slot int, token uint64) {
	token = q.hasher.hash(key)
	slot = slotOf(token, len(q.cells))
	if q.hasher.custom != nil { // It may be the same for many keys.
		token = maphash.Comparable(q.seed, key)
	}
	return slot, token | 1
}

// mayAdd reports whether the key's slot is here, and counts the key if not.
func (q *queue[T]) mayAdd(key T) bool {
	if q.member.state(slotOf(q.hasher.hash(key), len(q.cells))) == absent {
		q.ofOthers.Add(1)
		return false
	}
	return true
}

func (q *queue[T]) Holds(key T) bool {
	return q.member.state(slotOf(q.hasher.hash(key), len(q.cells))) == held
}

func (q *queue[T]) KeysOfOthers() uint64 { return q.ofOthers.Load() }

// Add adds the key if the member holds its slot, even if that is about to move: the key is dropped then when its turn
// comes, unless the slot has stayed.
func (q *queue[T]) Add(key T) {
	if q.mayAdd(key) {
		q.Extended.Add(key)
	}
}

// AddCause is Add if the queue below is no [workqueue.CauseAdder].
func (q *queue[T]) AddCause(key T, cause workqueue.Cause) {
	if a, ok := q.inner.(workqueue.CauseAdder[T]); !ok {
		q.Add(key)
	} else if q.mayAdd(key) {
		a.AddCause(key, cause)
	}
}

func (q *queue[T]) Causes(key T) workqueue.Causes {
	if a, ok := q.inner.(workqueue.CauseAdder[T]); ok {
		return a.Causes(key)
	}
	return workqueue.Causes{}
}

// AddedAgain returns nil if the queue below is no [workqueue.AddNotifier].
func (q *queue[T]) AddedAgain(key T) <-chan struct{} {
	if n, ok := q.inner.(workqueue.AddNotifier[T]); ok {
		return n.AddedAgain(key)
	}
	return nil
}

// AddAfter checks the slot now, and again when the key's time has come.
func (q *queue[T]) AddAfter(key T, after time.Duration) {
	if q.mayAdd(key) {
		q.inner.AddAfter(key, after)
	}
}

// AddRateLimited checks the slot when the key's time has come: it is called by handlers that have failed, and a key that
// is dropped then is forgotten by the limiter too.
func (q *queue[T]) AddRateLimited(key T) { q.inner.AddRateLimited(key) }

func (q *queue[T]) Forget(key T) { q.inner.Forget(key) }

func (q *queue[T]) NumRequeues(key T) int { return q.inner.NumRequeues(key) }

func (q *queue[T]) Get() (key T, shutdown bool) {
	for {
		key, shutdown = q.Extended.Get()
		if shutdown || q.take(key) {
			return key, shutdown
		}
	}
}

func (q *queue[T]) GetContext(ctx context.Context) (key T, err error) {
	for {
		key, err = q.Extended.GetContext(ctx)
		if err != nil || q.take(key) {
			return key, err
		}
	}
}

// take reports whether a key that came out of the queue below may be handed out. If not, it is not held any more.
func (q *queue[T]) take(key T) bool {
	slot, token := q.locate(key)
	for {
		cell := q.cells[slot].put(token)
		now := q.member.state(slot) // after the put
		if now == held {
			return true
		}
		cell.CompareAndSwap(token, 0)
		signal(q.member.toWork)
		if now == absent {
			// Before Done: if the slot comes back meanwhile, its listing makes the queue below remember the key.
			q.ofOthers.Add(1)
			q.inner.Forget(key)
		} else if !q.park(slot, key) {
			continue
		}
		q.Extended.Done(key)
		return false
	}
}

// Done says that the caller has finished with a key from Get.
func (q *queue[T]) Done(key T) {
	q.Extended.Done(key)
	slot, token := q.locate(key)
	q.cells[slot].remove(token)
	if q.member.state(slot) != held { // after the removal
		signal(q.member.toWork)
	}
}

// park keeps a key of a slot that is stopping, in case that it stays. It returns false if the slot is not stopping.
func (q *queue[T]) park(slot int, key T) bool {
	p := parkedKey{q.priorityOf(key), q.Causes(key)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member.state(slot) != stopping {
		return false
	}
	if q.mu.parked[slot] == nil {
		q.mu.parked[slot] = make(map[T]parkedKey)
	}
	q.mu.parked[slot][key] = p
	return true
}

// settled adds the parked keys of slots that stay, and drops those of slots that have moved.
func (q *queue[T]) settled(slots []int) {
	for _, slot := range slots {
		keys := q.unpark(slot)
		isHeld := q.member.state(slot) != absent
		for key, p := range keys {
			if isHeld {
				q.restore(key, p)
			} else {
				q.ofOthers.Add(1)
				q.inner.Forget(key)
			}
		}
	}
}

// restore adds a parked key with its priority and its causes. AddCause would raise a priority below zero: a queue that cannot
// add both at once loses the causes then.
func (q *queue[T]) restore(key T, p parkedKey) {
	withOpts, ok := q.inner.(interface {
		AddWithOpts(o priorityqueue.AddOpts, keys ...T)
	})
	for _, cause := range p.causes.Last {
		if ok {
			withOpts.AddWithOpts(priorityqueue.AddOpts{Priority: p.priority, Cause: &cause}, key)
		} else if p.priority >= 0 {
			q.AddCause(key, cause)
		}
	}
	q.add(key, p.priority)
}

func (q *queue[T]) unpark(slot int) map[T]parkedKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member.state(slot) == stopping {
		return nil
	}
	keys := q.mu.parked[slot]
	delete(q.mu.parked, slot)
	return keys
}

// queuedSlots returns the slots with queued keys, nil if they are not to be finished before a slot moves.
func (q *queue[T]) queuedSlots() map[int]bool {
	if q.finishes == nil {
		return nil
	}
	slots := make(map[int]bool)
	for k := range q.finishes.SnapshotKeys() {
		if k.State == workqueue.KeyQueued || k.Again {
			slot, _ := q.locate(k.Key)
			slots[slot] = true
		}
	}
	return slots
}

// prioritized is a queue with priorities, such as those of package priorityqueue.
type prioritized[T comparable] interface {
	worker.PriorityQueue[T]
	worker.KeyFinder[T]
	workqueue.KeyRemover[T]
	Pause()
	Resume()
}

// withMethodsOf returns q with those methods that some queues have in addition, if inner has them.
func (q *queue[T]) withMethodsOf(inner workqueue.TypedRateLimitingInterface[T]) Queue[T] {
	p, hasPriorities := inner.(prioritized[T])
	r, isReader := inner.(workqueue.KeyReader[T])
	switch {
	case hasPriorities && isReader:
		return &priorityReaderQueue[T]{priorityQueue[T]{q, p}, r}
	case hasPriorities:
		return &priorityQueue[T]{q, p}
	case isReader:
		return &readerQueue[T]{q, r}
	}
	return q
}

type (
	priorityQueue[T comparable] struct {
		*queue[T]
		prioritized[T]
	}
	readerQueue[T comparable] struct {
		*queue[T]
		workqueue.KeyReader[T]
	}
	priorityReaderQueue[T comparable] struct {
		priorityQueue[T]
		workqueue.KeyReader[T]
	}
)

// AddWithPriority checks the slot as AddAfter does.
func (q *priorityQueue[T]) AddWithPriority(key T, priority int, after time.Duration) {
	if q.mayAdd(key) {
		q.prioritized.AddWithPriority(key, priority, after)
	}
}

// OptsQueue is a queue whose adds have options of type O, as the PriorityQueue of controller-runtime.
type OptsQueue[T comparable, O any] interface {
	workqueue.TypedRateLimitingInterface[T]
	AddWithOpts(o O, keys ...T)
	GetWithPriority() (key T, priority int, shutdown bool)
}

// NewOptsQueue is [NewQueue] for a queue with the interface of controller-runtime's PriorityQueue, and returns one.
// The function opts returns the options to add a key with a priority:
//
//	controller.Options{NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
//		inner := priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter })
//		return sharding.NewOptsQueue(inner, member, config, func(priority int) priorityqueue.AddOpts {
//			return priorityqueue.AddOpts{Priority: &priority}
//		})
//	}}
func NewOptsQueue[T comparable, O any](inner OptsQueue[T, O], member *Member, config QueueConfig[T], opts func(priority int) O) interface {
	Queue[T]
	OptsQueue[T, O]
} {
	q := &optsQueue[T, O]{newQueue(inner, member, config), inner}
	q.add = func(key T, priority int) { inner.AddWithOpts(opts(priority), key) }
	defer member.register(q)
	return q
}

type optsQueue[T comparable, O any] struct {
	*queue[T]
	inner OptsQueue[T, O]
}

// AddWithOpts adds those keys whose slots the member holds.
func (q *optsQueue[T, O]) AddWithOpts(o O, keys ...T) {
	for _, key := range keys {
		if q.mayAdd(key) {
			q.inner.AddWithOpts(o, key)
		}
	}
}

func (q *optsQueue[T, O]) GetWithPriority() (key T, priority int, shutdown bool) {
	for {
		key, priority, shutdown = q.inner.GetWithPriority()
		if shutdown || q.take(key) {
			return key, priority, shutdown
		}
	}
}
