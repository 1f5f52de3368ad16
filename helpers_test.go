package workqueue_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

func TestMain(m *testing.M) {
	if _, set := os.LookupEnv("WORKQUEUE_STRESS"); !set && !testkit.Long {
		os.Setenv("WORKQUEUE_STRESS", "300ms") // of each layer
	}
	goleak.VerifyTestMain(m)
}

// options are what a layer is built with.
type options[T comparable] struct {
	name     string
	provider workqueue.MetricsProvider
	clock    clock.WithTicker
	order    workqueue.Queue[T]
	limiter  workqueue.TypedRateLimiter[T]
}

func (o options[T]) typed() *workqueue.Typed[T] {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: o.name, MetricsProvider: o.provider, Clock: o.clock, Queue: o.order,
	})
}

func (o options[T]) delaying() workqueue.TypedDelayingInterface[T] {
	c := workqueue.TypedDelayingQueueConfig[T]{Name: o.name, MetricsProvider: o.provider, Clock: o.clock}
	if o.order != nil {
		c.Queue = o.typed()
	}
	return workqueue.NewTypedDelayingQueueWithConfig(c)
}

func (o options[T]) rateLimiting() workqueue.TypedRateLimitingInterface[T] {
	c := workqueue.TypedRateLimitingQueueConfig[T]{Name: o.name, MetricsProvider: o.provider, Clock: o.clock}
	if o.order != nil {
		c.DelayingQueue = o.delaying()
	}
	return workqueue.NewTypedRateLimitingQueueWithConfig(o.limiter, c)
}

// delayer is what this package's delaying and rate-limiting queues have in common.
type delayer[T comparable] interface {
	workqueue.Extended[T]
	AddAfter(item T, duration time.Duration)
}

type builder[T comparable] func(options[T]) workqueue.Extended[T]

type delayerBuilder[T comparable] func(options[T]) delayer[T]

func (build delayerBuilder[T]) plain() builder[T] {
	return func(o options[T]) workqueue.Extended[T] { return build(o) }
}

// layer is one of the ways to build a queue with this package.
type layer[T comparable] struct {
	name  string
	build builder[T]
}

type delayingLayer[T comparable] struct {
	name  string
	build delayerBuilder[T]
}

// delayingLayers are the layers with AddAfter, each with our own line of keys and a user's.
func delayingLayers[T comparable]() []delayingLayer[T] {
	custom := func(o options[T]) options[T] {
		if o.order == nil {
			o.order = &listQueue[T]{}
		}
		return o
	}
	return []delayingLayer[T]{
		{"delaying", func(o options[T]) delayer[T] { return o.delaying().(delayer[T]) }},
		{"delaying,custom", func(o options[T]) delayer[T] { return custom(o).delaying().(delayer[T]) }},
		{"rate-limiting", func(o options[T]) delayer[T] { return o.rateLimiting().(delayer[T]) }},
		{"rate-limiting,custom", func(o options[T]) delayer[T] { return custom(o).rateLimiting().(delayer[T]) }},
	}
}

func layers[T comparable]() []layer[T] {
	all := []layer[T]{
		{"typed", func(o options[T]) workqueue.Extended[T] { return o.typed() }},
		{"typed,custom", func(o options[T]) workqueue.Extended[T] {
			if o.order == nil {
				o.order = &listQueue[T]{}
			}
			return o.typed()
		}},
	}
	for _, l := range delayingLayers[T]() {
		all = append(all, layer[T]{l.name, l.build.plain()})
	}
	return all
}

// everyLayer runs f for each layer, in a bubble: the clock is virtual, a call that blocks forever
// fails the test, and so does a goroutine that f leaves behind.
func everyLayer[T comparable](t *testing.T, f func(*testing.T, builder[T])) {
	t.Helper()
	for _, l := range layers[T]() {
		t.Run(l.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, func(o options[T]) workqueue.Extended[T] { return endAfterFailure(t, l.build(o)) })
			})
		})
	}
}

func everyDelayingLayer[T comparable](t *testing.T, f func(*testing.T, delayerBuilder[T])) {
	t.Helper()
	for _, l := range delayingLayers[T]() {
		t.Run(l.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, func(o options[T]) delayer[T] { return endAfterFailure(t, l.build(o)) })
			})
		})
	}
}

// endAfterFailure shuts q down if the test fails. Otherwise the goroutines that wait for q would make the
// bubble panic, and no other test would be run.
func endAfterFailure[Q interface{ ShutDown() }](t *testing.T, q Q) Q {
	t.Cleanup(func() {
		if t.Failed() {
			q.ShutDown()
		}
	})
	return q
}

// got is what Get or GetContext returned.
type got[T comparable] struct {
	key T
	err error
}

func startGet[T comparable](q workqueue.TypedInterface[T]) *testkit.Call[got[T]] {
	return testkit.Start(func() got[T] {
		key, shutdown := q.Get()
		if shutdown {
			return got[T]{key, workqueue.ErrShutDown}
		}
		return got[T]{key, nil}
	})
}

func startDrain[T comparable](q workqueue.TypedInterface[T]) *testkit.Call[bool] {
	return testkit.Start(func() bool { q.ShutDownWithDrain(); return true })
}

// hold gets the next key of q, which must be want.
func hold[T comparable](t *testing.T, q workqueue.TypedInterface[T], want ...T) {
	t.Helper()
	for _, w := range want {
		if q.Len() == 0 {
			t.Fatalf("nothing is queued, want key %v", w)
		}
		if key, shutdown := q.Get(); shutdown || key != w {
			t.Fatalf("Get() = %v, %v, want key %v", key, shutdown, w)
		}
	}
}

// process gets and finishes the keys that are queued, which must be want and nothing else.
func process[T comparable](t *testing.T, q workqueue.TypedInterface[T], want ...T) {
	t.Helper()
	var keys []T
	for q.Len() > 0 {
		key, shutdown := q.Get()
		if shutdown {
			t.Fatalf("Get() reports shutdown while Len() = %d", q.Len())
		}
		keys = append(keys, key)
		q.Done(key)
	}
	if !slices.Equal(keys, want) {
		t.Fatalf("processed %v, want %v", keys, want)
	}
}

func wantLen[T comparable](t *testing.T, q workqueue.TypedInterface[T], want int) {
	t.Helper()
	if n := q.Len(); n != want {
		t.Fatalf("Len() = %d, want %d", n, want)
	}
}

// wantShutDown asserts that q is shut down and empty: no getter blocks, and none gets a key.
func wantShutDown[T comparable](t *testing.T, q workqueue.Extended[T]) {
	t.Helper()
	var zero T
	if !q.ShuttingDown() {
		t.Fatal("ShuttingDown() = false after shutdown")
	}
	if key, shutdown := q.Get(); !shutdown || key != zero {
		t.Fatalf("Get() after shutdown = %v, %v, want the zero key and true", key, shutdown)
	}
	if key, err := q.GetContext(context.Background()); !errors.Is(err, workqueue.ErrShutDown) || key != zero {
		t.Fatalf("GetContext() after shutdown = %v, %v, want the zero key and ErrShutDown", key, err)
	}
}

// hookedQueue is a user's queue that embeds ours.
type hookedQueue[T comparable] struct {
	workqueue.Extended[T]
	// beforeAdd, unless nil, is called at the start of Add.
	beforeAdd func()
}

func newHooked[T comparable]() *hookedQueue[T] {
	return &hookedQueue[T]{Extended: workqueue.NewTyped[T]()}
}

func (q *hookedQueue[T]) Add(item T) {
	if q.beforeAdd != nil {
		q.beforeAdd()
	}
	q.Extended.Add(item)
}
