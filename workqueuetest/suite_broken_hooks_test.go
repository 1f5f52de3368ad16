package workqueuetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// whole is everything that a queue can have.
type whole = failing

// sound builds a correct queue.
func sound(c Config[string]) whole {
	return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter,
		workqueue.TypedRateLimitingQueueConfig[string]{
			Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock,
		}).(whole)
}

func soundAny(c Config[any]) workqueue.TypedInterface[any] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter,
		workqueue.TypedRateLimitingQueueConfig[any]{
			Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock,
		})
}

// holding is a correct queue that knows which keys workers hold.
type holding struct {
	whole
	mu   sync.Mutex
	held map[string]bool
}

func newHolding(c Config[string]) *holding {
	return &holding{whole: sound(c), held: make(map[string]bool)}
}

func (q *holding) note(key string, held bool) (before bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before = q.held[key]
	if held {
		q.held[key] = true
	} else {
		delete(q.held, key)
	}
	return before
}

func (q *holding) holds(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held[key]
}

func (q *holding) Get() (string, bool) {
	key, err := q.GetContext(context.Background())
	return key, err != nil
}

func (q *holding) GetContext(ctx context.Context) (string, error) {
	key, err := q.whole.GetContext(ctx)
	if err == nil {
		q.note(key, true)
	}
	return key, err
}

func (q *holding) Done(key string) {
	q.note(key, false)
	q.whole.Done(key)
}

// newMerging builds a correct queue with OneEntry. Its own package runs the whole suite on it.
func newMerging(c Config[string]) fifo {
	return priorityqueue.New(priorityqueue.Config[string]{Clock: c.Clock, RateLimiter: c.RateLimiter})
}

// hooked is a queue whose methods a bug can replace one by one.
type hooked struct {
	whole
	add, done, addRateLimited, forget func(key string)
	putOnHold                         func(key string)
	addAfter                          func(key string, d time.Duration)
	get                               func() (string, bool)
	getContext                        func(context.Context) (string, error)
	next                              func(context.Context) (workqueue.HandOut[string], error)
	shutDown, shutDownWithDrain       func()
	shutDownContext                   func(context.Context) error
	stats                             func() workqueue.Stats
	addedAt                           func(key string) time.Time
	fail                              func(ctx context.Context, key string,
		f workqueue.Failure) (workqueue.Retry, error)
	dropQueued  func() []string
	causes      func(key string) workqueue.Causes
	addedAgain  func(key string) <-chan struct{}
	snapshotKey func(key string) (workqueue.KeySnapshot[string], bool)
}

func hook(q whole) *hooked {
	return &hooked{
		q, q.Add, q.Done, q.AddRateLimited, q.Forget, q.PutOnHold, q.AddAfter, q.Get, q.GetContext, q.Next,
		q.ShutDown, q.ShutDownWithDrain, q.ShutDownContext, q.Stats, q.AddedAt, q.Fail, q.DropQueued, q.Causes, q.AddedAgain, q.SnapshotKey,
	}
}

func (q *hooked) Add(key string)                                 { q.add(key) }
func (q *hooked) Done(key string)                                { q.done(key) }
func (q *hooked) AddRateLimited(key string)                      { q.addRateLimited(key) }
func (q *hooked) Forget(key string)                              { q.forget(key) }
func (q *hooked) PutOnHold(key string)                           { q.putOnHold(key) }
func (q *hooked) AddAfter(key string, d time.Duration)           { q.addAfter(key, d) }
func (q *hooked) Get() (string, bool)                            { return q.get() }
func (q *hooked) GetContext(ctx context.Context) (string, error) { return q.getContext(ctx) }
func (q *hooked) ShutDown()                                      { q.shutDown() }
func (q *hooked) ShutDownWithDrain()                             { q.shutDownWithDrain() }
func (q *hooked) ShutDownContext(ctx context.Context) error      { return q.shutDownContext(ctx) }
func (q *hooked) Stats() workqueue.Stats                         { return q.stats() }
func (q *hooked) DropQueued() []string                           { return q.dropQueued() }
func (q *hooked) Causes(key string) workqueue.Causes             { return q.causes(key) }
func (q *hooked) AddedAgain(key string) <-chan struct{}          { return q.addedAgain(key) }

func (q *hooked) Next(ctx context.Context) (workqueue.HandOut[string], error) { return q.next(ctx) }

func (q *hooked) Fail(ctx context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
	return q.fail(ctx, key, f)
}

func (q *hooked) SnapshotKey(key string) (workqueue.KeySnapshot[string], bool) {
	return q.snapshotKey(key)
}

func (q *hooked) AddedAt(key string) time.Time { return q.addedAt(key) }

// holds reports whether a worker holds key.
func (q *hooked) holds(key string) bool { return q.whole.(*holding).holds(key) }

// atShutDown returns a channel that ShutDown closes.
func (q *hooked) atShutDown() <-chan struct{} {
	stop := make(chan struct{})
	once := sync.OnceFunc(func() { close(stop) })
	q.shutDown = func() { once(); q.whole.ShutDown() }
	return stop
}

// hoardsAny keeps every key, and accepts unhashable ones.
type hoardsAny struct {
	workqueue.TypedRateLimitingInterface[any]
	keys *[]any
}

func (q hoardsAny) Add(key any) {
	defer func() { _ = recover() }()
	*q.keys = append(*q.keys, key)
	q.TypedRateLimitingInterface.Add(key)
}

// looks considers keys equal if they print the same.
type looks struct {
	workqueue.TypedInterface[any]
	seen map[string]bool
}

func (q looks) Add(key any) {
	if s := fmt.Sprint(key); !q.seen[s] {
		q.seen[s] = true
		q.TypedInterface.Add(key)
	}
}

// neverSinks is a metrics provider whose depth only grows.
type neverSinks struct{ workqueue.MetricsProvider }

type onlyUp struct{ workqueue.GaugeMetric }

func (onlyUp) Dec() {}

func (p neverSinks) NewDepthMetric(name string) workqueue.GaugeMetric {
	return onlyUp{p.MetricsProvider.NewDepthMetric(name)}
}
