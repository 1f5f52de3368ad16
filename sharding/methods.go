package sharding

import (
	"iter"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

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
		return &priorityReaderQueue[T]{priorityQueue[T]{q, p}, reader[T]{r}}
	case hasPriorities:
		return &priorityQueue[T]{q, p}
	case isReader:
		return &readerQueue[T]{q, reader[T]{r}}
	}
	return q
}

type priorityQueue[T comparable] struct {
	*queue[T]
	inner prioritized[T]
}

func (q *priorityQueue[T]) PriorityOf(key T) int { return q.inner.PriorityOf(key) }
func (q *priorityQueue[T]) Has(key T) bool       { return q.inner.Has(key) }
func (q *priorityQueue[T]) Discard(key T) bool   { return q.inner.Discard(key) }
func (q *priorityQueue[T]) Pause()               { q.inner.Pause() }
func (q *priorityQueue[T]) Resume()              { q.inner.Resume() }

// AddWithPriority checks the slot as AddAfter does.
func (q *priorityQueue[T]) AddWithPriority(key T, priority int, after time.Duration) {
	if q.mayAdd(key) {
		q.inner.AddWithPriority(key, priority, after)
	}
}

// reader has the methods of a KeyReader and no others.
type reader[T comparable] struct {
	inner workqueue.KeyReader[T]
}

func (r reader[T]) SnapshotKey(key T) (workqueue.KeySnapshot[T], bool) {
	return r.inner.SnapshotKey(key)
}
func (r reader[T]) SnapshotKeys() iter.Seq[workqueue.KeySnapshot[T]] { return r.inner.SnapshotKeys() }

type readerQueue[T comparable] struct {
	*queue[T]
	reader[T]
}

type priorityReaderQueue[T comparable] struct {
	priorityQueue[T]
	reader[T]
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
