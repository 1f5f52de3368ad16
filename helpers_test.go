package workqueue_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options tell a layer what to build.
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

// everyLayer runs f for each layer, in a bubble: the clock is virtual, a call that blocks for ever
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

// listQueue is a user's Queue, as simple as can be.
type listQueue[T comparable] struct {
	keys    []T
	touched []T
	// on, unless nil, is called at the start of every method, with its name.
	on func(method string)
}

func (l *listQueue[T]) call(method string) {
	if l.on != nil {
		l.on(method)
	}
}

func (l *listQueue[T]) Touch(item T) { l.call("Touch"); l.touched = append(l.touched, item) }
func (l *listQueue[T]) Push(item T)  { l.call("Push"); l.keys = append(l.keys, item) }
func (l *listQueue[T]) Len() int     { l.call("Len"); return len(l.keys) }
func (l *listQueue[T]) Pop() T {
	l.call("Pop")
	item := l.keys[0]
	l.keys = slices.Delete(l.keys, 0, 1)
	return item
}

// call is a call that may block.
type call[R any] struct{ result atomic.Pointer[R] }

// start makes a call in a goroutine.
func start[R any](f func() R) *call[R] {
	c := &call[R]{}
	go func() {
		r := f()
		c.result.Store(&r)
	}()
	return c
}

// mustBlock fails the test unless the call is blocked, in a bubble in which all others are as well.
func (c *call[R]) mustBlock(t *testing.T, what string) {
	t.Helper()
	synctest.Wait()
	if r := c.result.Load(); r != nil {
		t.Fatalf("%s: returned %v, and should block", what, *r)
	}
}

// mustReturn returns the result of the call. It must have returned when the bubble has come to rest.
func (c *call[R]) mustReturn(t *testing.T, what string) R {
	t.Helper()
	synctest.Wait()
	r := c.result.Load()
	if r == nil {
		t.Fatalf("%s: still blocks", what)
	}
	return *r
}

// got is what Get or GetContext returned.
type got[T comparable] struct {
	key T
	err error
}

func startGet[T comparable](q workqueue.TypedInterface[T]) *call[got[T]] {
	return start(func() got[T] {
		key, shutdown := q.Get()
		if shutdown {
			return got[T]{key, workqueue.ErrShutDown}
		}
		return got[T]{key, nil}
	})
}

func startGetContext[T comparable](ctx context.Context, q workqueue.Extended[T]) *call[got[T]] {
	return start(func() got[T] {
		key, err := q.GetContext(ctx)
		return got[T]{key, err}
	})
}

func startDrain[T comparable](q workqueue.TypedInterface[T]) *call[bool] {
	return start(func() bool { q.ShutDownWithDrain(); return true })
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

// wantPanic calls f, which must panic, and returns what with.
func wantPanic(t *testing.T, what string, f func()) (value any) {
	t.Helper()
	defer func() {
		if value = recover(); value == nil {
			t.Errorf("%s: does not panic", what)
		}
	}()
	f()
	return nil
}

var testEpoch = time.Date(2024, time.February, 29, 12, 0, 0, 0, time.UTC)

func newFakeClock() *testingclock.FakeClock { return testingclock.NewFakeClock(testEpoch) }

// hookedClock calls its hooks, those that are not nil, before it does what it is asked.
type hookedClock struct {
	clock.WithTicker
	onNow, onReset func()
}

func (c *hookedClock) Now() time.Time {
	if c.onNow != nil {
		c.onNow()
	}
	return c.WithTicker.Now()
}

func (c *hookedClock) Since(t time.Time) time.Duration {
	if c.onNow != nil {
		c.onNow()
	}
	return c.WithTicker.Since(t)
}

func (c *hookedClock) NewTimer(d time.Duration) clock.Timer {
	return hookedTimer{c.WithTicker.NewTimer(d), c}
}

type hookedTimer struct {
	clock.Timer
	clock *hookedClock
}

func (h hookedTimer) Reset(d time.Duration) bool {
	if h.clock.onReset != nil {
		h.clock.onReset()
	}
	return h.Timer.Reset(d)
}

// eventually polls until f returns true, outside of bubbles, where there is no virtual time.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// goroutineCount is the number of goroutines of the bubble at one moment.
type goroutineCount int

// newGoroutineCount counts by their stacks, because runtime.NumGoroutine sees other tests' as well.
func newGoroutineCount() goroutineCount {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	return goroutineCount(bytes.Count(buf[:runtime.Stack(buf, true)], []byte("synctest bubble")))
}

// want asserts how many goroutines there are more than at that moment.
func (base goroutineCount) want(t *testing.T, when string, more int) {
	t.Helper()
	if n := newGoroutineCount() - base; int(n) != more {
		t.Errorf("%s: %d more goroutines, want %d", when, n, more)
	}
}

// panickingClock is the clock of a queue that must not read it.
type panickingClock struct{}

func (panickingClock) Now() time.Time                              { panic("clock: Now") }
func (panickingClock) Since(time.Time) time.Duration               { panic("clock: Since") }
func (panickingClock) After(time.Duration) <-chan time.Time        { panic("clock: After") }
func (panickingClock) NewTimer(time.Duration) clock.Timer          { panic("clock: NewTimer") }
func (panickingClock) NewTicker(d time.Duration) clock.Ticker      { panic("clock: NewTicker") }
func (panickingClock) Sleep(time.Duration)                         { panic("clock: Sleep") }
func (panickingClock) Tick(time.Duration) <-chan time.Time         { panic("clock: Tick") }
func (panickingClock) AfterFunc(time.Duration, func()) clock.Timer { panic("clock: AfterFunc") }
