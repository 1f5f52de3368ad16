package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// The constructors, those without Typed in their names included, build what their names say, with what they
// are given.
func TestConstructors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := testkit.NewFakeClock()
		limiter := workqueue.NewItemFastSlowRateLimiter(time.Second, time.Second, 0)
		config := workqueue.DelayingQueueConfig{Name: "name", Clock: fake}
		limited := workqueue.RateLimitingQueueConfig{Name: "name", Clock: fake}
		for name, tt := range map[string]struct {
			queue           workqueue.TypedInterface[any]
			isNamed, onFake bool
		}{
			"New":           {workqueue.New(), false, false},
			"NewNamed":      {workqueue.NewNamed("name"), true, false},
			"NewWithConfig": {workqueue.NewWithConfig(workqueue.QueueConfig{}), false, false},
			"NewTyped":      {workqueue.NewTyped[any](), false, false},
			"NewTypedWithConfig": {workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[any]{}),
				false, false},
			"NewDelayingQueue":                {workqueue.NewDelayingQueue(), false, false},
			"NewTypedDelayingQueue":           {workqueue.NewTypedDelayingQueue[any](), false, false},
			"TypedNewDelayingQueue":           {workqueue.TypedNewDelayingQueue[any](), false, false},
			"NewDelayingQueueWithConfig":      {workqueue.NewDelayingQueueWithConfig(config), true, true},
			"NewTypedDelayingQueueWithConfig": {workqueue.NewTypedDelayingQueueWithConfig(config), true, true},
			"NewNamedDelayingQueue":           {workqueue.NewNamedDelayingQueue("name"), true, false},
			"NewDelayingQueueWithCustomQueue": {workqueue.NewDelayingQueueWithCustomQueue(workqueue.New(), "name"),
				true, false},
			"nil custom queue":                {workqueue.NewDelayingQueueWithCustomQueue(nil, "name"), true, false},
			"NewDelayingQueueWithCustomClock": {workqueue.NewDelayingQueueWithCustomClock(fake, "name"), true, true},
			"NewRateLimitingQueue":            {workqueue.NewRateLimitingQueue(limiter), false, false},
			"NewTypedRateLimitingQueue":       {workqueue.NewTypedRateLimitingQueue[any](limiter), false, false},
			"NewRateLimitingQueueWithConfig": {workqueue.NewRateLimitingQueueWithConfig(limiter, limited),
				true, true},
			"NewTypedRateLimitingQueueWithConfig": {
				workqueue.NewTypedRateLimitingQueueWithConfig[any](limiter, limited), true, true},
			"NewNamedRateLimitingQueue": {workqueue.NewNamedRateLimitingQueue(limiter, "name"), true, false},
			"NewRateLimitingQueueWithDelayingInterface": {
				workqueue.NewRateLimitingQueueWithDelayingInterface(workqueue.NewDelayingQueueWithConfig(config),
					limiter), true, true},
			"nil delaying queue": {workqueue.NewRateLimitingQueueWithDelayingInterface(nil, limiter), false, false},
		} {
			if got := tt.queue.(workqueue.Extended[any]).Stats().Name == "name"; got != tt.isNamed {
				t.Errorf("%s: is named: %v, want %v", name, got, tt.isNamed)
			}
			tt.queue.Add(1)
			want := []any{1}
			if q, ok := tt.queue.(workqueue.TypedRateLimitingInterface[any]); ok {
				q.AddRateLimited("a")
				want = append(want, "a")
			} else if q, ok := tt.queue.(workqueue.TypedDelayingInterface[any]); ok {
				q.AddAfter("a", time.Second)
				want = append(want, "a")
			}
			synctest.Wait()
			if tt.onFake {
				fake.Step(time.Second)
			} else {
				time.Sleep(time.Second)
			}
			synctest.Wait()
			process(t, tt.queue, want...)
			tt.queue.ShutDown()
		}
	})
}

// With key types that are no interfaces, the only bad keys are NaN. (The conformance suite has the others.)
func TestNaN(t *testing.T) {
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[float64]) {
		q := build(options[float64]{})
		for range 100 { // many, so that nothing of them must pile up
			testkit.WantPanic(t, "Add", func() { q.Add(math.NaN()) })
			testkit.WantPanic(t, "AddAfter", func() { q.AddAfter(math.NaN(), time.Second) })
		}
		if st := q.Stats(); st.Queued+st.Waiting != 0 {
			t.Errorf("Stats() = %+v", st)
		}
		// Zeros of both signs are equal, and so one key.
		q.Add(0)
		q.Add(math.Copysign(0, -1))
		q.Add(math.Inf(1))
		process(t, q, 0, math.Inf(1))
	})
}

// nosyKey is not equal to itself, and looks at its queue when it is printed.
type nosyKey struct {
	x float64
	q *workqueue.Typed[nosyKey]
}

func (k nosyKey) String() string { return fmt.Sprint(k.q.Len()) }

func TestPanicDoesNotPrintTheKey(t *testing.T) {
	q := workqueue.NewTyped[nosyKey]()
	testkit.WantPanic(t, "Add", func() { q.Add(nosyKey{math.NaN(), q}) })
	q.Add(nosyKey{1, q})
	if q.Len() != 1 {
		t.Errorf("Len() = %d after a panic", q.Len())
	}
}

// optionsOf makes options of what the conformance suite wants of a layer.
func optionsOf[T comparable](layer string, c workqueuetest.Config[T]) options[T] {
	o := options[T]{name: c.Name, provider: c.MetricsProvider, clock: c.Clock, limiter: c.RateLimiter}
	if strings.HasSuffix(layer, ",custom") {
		// Our listQueue needs quadratic time, which is too much for a burst of keys.
		o.order = workqueue.DefaultQueue[T]()
	}
	return o
}

// Every queue of this package keeps the whole contract, at every layer.
func TestConformance(t *testing.T) {
	forAny := make(map[string]builder[any])
	for _, l := range layers[any]() {
		forAny[l.name] = l.build
	}
	for _, l := range layers[string]() {
		t.Run(l.name, func(t *testing.T) {
			workqueuetest.Suite{
				New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
					return l.build(optionsOf(l.name, c))
				},
				NewAny: func(c workqueuetest.Config[any]) workqueue.TypedInterface[any] {
					return forAny[l.name](optionsOf(l.name, c))
				},
				Check: workqueue.CheckInvariants[string],
				Lacks: lacks(l.name),
			}.Run(t)
		})
	}
}

// lacks is what a layer has not got because it belongs to a higher one.
func lacks(layer string) map[string]string {
	const why = "a higher layer has it"
	switch {
	case strings.HasPrefix(layer, "typed"):
		return map[string]string{workqueuetest.Delays: why, workqueuetest.Limiter: why, workqueuetest.Failures: why}
	case strings.HasPrefix(layer, "delaying"):
		return map[string]string{workqueuetest.Limiter: why, workqueuetest.Failures: why}
	}
	return nil
}

// plain has client-go's methods and no others.
type plain[T comparable] struct{ workqueue.TypedInterface[T] }

type plainDelaying[T comparable] struct {
	workqueue.TypedDelayingInterface[T]
}

// The layers over a queue that is not ours are plain, as client-go's, and do what those do.
func TestLayersOverAForeignQueue(t *testing.T) {
	for name, build := range map[string]func(plain[string]) workqueue.TypedRateLimitingInterface[string]{
		"its delaying queue is ours": func(below plain[string]) workqueue.TypedRateLimitingInterface[string] {
			return workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
					workqueue.TypedDelayingQueueConfig[string]{Queue: below})})
		},
		"its delaying queue is not": func(below plain[string]) workqueue.TypedRateLimitingInterface[string] {
			return workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
				DelayingQueue: plainDelaying[string]{workqueue.NewTypedDelayingQueueWithConfig(
					workqueue.TypedDelayingQueueConfig[string]{Queue: below.TypedInterface})}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := testkit.Goroutines()
				below := plain[string]{workqueue.NewTyped[string]()}
				q := build(below)
				if _, ok := q.(workqueue.Extended[string]); ok {
					t.Error("the result is an Extended")
				}
				q.Add("a")
				q.AddAfter("b", time.Second)
				q.AddRateLimited("c")
				if q.NumRequeues("c") != 1 {
					t.Errorf("NumRequeues() = %d", q.NumRequeues("c"))
				}
				time.Sleep(time.Second)
				synctest.Wait()
				process(t, q, "a", "c", "b")
				base.WantMore(t, "with nothing waiting", 0)
				q.Forget("c")
				q.AddAfter("d", time.Hour)
				q.ShutDownWithDrain()
				if !below.ShuttingDown() || q.NumRequeues("c") != 0 {
					t.Error("the queue below is not shut down, or the limiter has not forgotten")
				}
				base.WantMore(t, "after shutdown", 0)
			})
		})
	}
}

// The tests of this file put more on a queue than most programs do. The limits of memory are promises about a
// million keys. The bytes of the keys' strings are allocated before, and do not count.

const million = 1_000_000

// fewer is n with WORKQUEUE_LONG, and otherwise, or with the race detector, a fiftieth of it.
func fewer(n int) int {
	if testkit.RaceEnabled || !testkit.Long {
		return n / 50
	}
	return n
}

// A million keys come due at the same moment, while a million others are added. Each comes once.
func TestMillionKeysAtOnce(t *testing.T) {
	n := fewer(million)
	fake := testkit.NewFakeClock()
	q := options[int]{clock: fake}.delaying()
	for key := range n {
		q.AddAfter(key, time.Hour)
	}
	counts := make([]atomic.Int32, 2*n)
	var workers, left sync.WaitGroup
	left.Add(2 * n)
	for range 4 {
		workers.Go(func() {
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				counts[key].Add(1)
				q.Done(key)
				left.Done() // panics if there is one too many
			}
		})
	}
	fake.Step(time.Hour)
	for key := range n {
		q.Add(n + key)
	}
	left.Wait()
	q.ShutDownWithDrain()
	workers.Wait()
	for key := range counts {
		if c := counts[key].Load(); c != 1 {
			t.Fatalf("key %d came %d times", key, c)
		}
	}
}

// Ten thousand queues, each with a key now and one a second later: a goroutine each while a key waits, none
// afterwards and none after shutdown. All keys come.
func TestTenThousandQueues(t *testing.T) {
	n := 10_000
	if testkit.RaceEnabled { // The race detector knows at most 8128 goroutines.
		n = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		base := testkit.Goroutines()
		queues := make([]delayer[int], n)
		for i := range queues {
			queues[i] = options[int]{}.rateLimiting().(delayer[int])
			queues[i].AddAfter(i, time.Second)
			queues[i].Add(-i)
		}
		base.WantMore(t, "a key waits in each queue", n)
		time.Sleep(time.Second)
		base.WantMore(t, "all keys have come due", 0)
		for i, q := range queues {
			want := []int{-i, i}
			if i == 0 {
				want = want[:1] // 0 is -0
			}
			process(t, q, want...)
			q.AddAfter(i, time.Second)
			q.ShutDown()
			wantShutDown(t, q)
		}
		base.WantMore(t, "after shutdown", 0)
	})
}

// A program whose keys do not fit its memory limit (GOMEMLIMIT) collects garbage nearly all the time. The
// queue is as slow as the rest of it, and loses nothing: what it keeps for the next burst is gone, what it
// holds is not.
func TestMemoryLimitIsReached(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 20))
	n := fewer(60_000)
	keys := testkit.Keys(n)
	fake := testkit.NewFakeClock()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Hour)
	q := options[string]{clock: fake, limiter: limiter}.rateLimiting()
	for burst := range 2 {
		for i, key := range keys {
			switch i % 3 {
			case 0:
				q.Add(key)
			case 1:
				q.AddAfter(key, time.Duration(i)*time.Millisecond)
			case 2:
				q.AddRateLimited(key)
			}
		}
		fake.Step(time.Hour)
		seen := make(map[string]bool, n)
		for range keys {
			key, _ := q.Get()
			seen[key] = true
			q.Done(key)
		}
		if len(seen) != n || q.Len() != 0 {
			t.Fatalf("burst %d: %d keys of %d came, %d are left", burst, len(seen), n, q.Len())
		}
	}
	q.ShutDown()
}

func skipMemory(t *testing.T) {
	t.Helper()
	if testkit.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	if !testkit.Long {
		t.Skip("a million keys take seconds: set WORKQUEUE_LONG")
	}
}

func TestMemoryOfAMillionKeys(t *testing.T) {
	skipMemory(t)
	keys := testkit.Keys(million)
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
	tests := []struct {
		name  string
		limit int64 // for a key
		fill  func(q workqueue.TypedRateLimitingInterface[string], key string)
		empty func(q workqueue.TypedRateLimitingInterface[string])
	}{
		{"queued", 73, func(q workqueue.TypedRateLimitingInterface[string], key string) { q.Add(key) }, drainAll},
		{"delayed", 100, func(q workqueue.TypedRateLimitingInterface[string], key string) {
			q.AddAfter(key, 10*time.Second)
		}, func(q workqueue.TypedRateLimitingInterface[string]) {
			time.Sleep(20 * time.Second)
			synctest.Wait()
			drainAll(q)
		}},
		{"failed", 73, func(q workqueue.TypedRateLimitingInterface[string], key string) { limiter.When(key) },
			func(q workqueue.TypedRateLimitingInterface[string]) {
				for _, key := range keys {
					q.Forget(key)
				}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// In a bubble, so that all delayed keys come due at once.
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.NewTypedRateLimitingQueue(limiter)
				before := testkit.Heap()
				for _, key := range keys {
					tt.fill(q, key)
				}
				full := testkit.Heap() - before
				t.Logf("%d bytes a key", full/million)
				if full > tt.limit*million {
					t.Errorf("%d bytes a key, at most %d are promised", full/million, tt.limit)
				}
				tt.empty(q)
				kept := testkit.Heap() - before
				t.Logf("%d KiB kept", kept>>10)
				if kept > 1<<20 {
					t.Errorf("%d KiB kept, at most 1024 are promised", kept>>10)
				}
				q.ShutDown()
			})
		})
	}
	runtime.KeepAlive(keys)
}

func drainAll(q workqueue.TypedRateLimitingInterface[string]) {
	for q.Len() > 0 {
		key, _ := q.Get()
		q.Done(key)
	}
}

// A million keys that workers held all at once, and a user's Queue for them.
func TestMemoryOfAMillionHeldKeys(t *testing.T) {
	skipMemory(t)
	keys := testkit.Keys(million)
	for name, order := range map[string]workqueue.Queue[string]{
		"ring": nil, "DefaultQueue": workqueue.DefaultQueue[string](),
	} {
		q := options[string]{order: order, name: "q", provider: silent{}}.rateLimiting()
		before := testkit.Heap()
		for _, key := range keys {
			q.Add(key)
		}
		for range keys {
			q.Get()
		}
		for _, key := range keys {
			q.Done(key)
		}
		kept := testkit.Heap() - before
		t.Logf("%s: %d KiB kept", name, kept>>10)
		if kept > 1<<20 {
			t.Errorf("%s: %d KiB kept, at most 1024 are promised", name, kept>>10)
		}
		q.ShutDown()
	}
	runtime.KeepAlive(keys)
}

func TestMemoryOfAnIdleQueue(t *testing.T) {
	skipMemory(t)
	const n = 10_000
	queues := make([]workqueue.TypedRateLimitingInterface[string], n)
	goroutines := runtime.NumGoroutine()
	before := testkit.Heap()
	for i := range queues {
		queues[i] = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	}
	size := (testkit.Heap() - before) / n
	t.Logf("%d bytes", size)
	if size > 2<<10 {
		t.Errorf("an idle queue takes %d bytes, at most 2048 are promised", size)
	}
	if g := runtime.NumGoroutine(); g > goroutines {
		t.Errorf("%d idle queues have %d goroutines", n, g-goroutines)
	}
	runtime.KeepAlive(queues)
}

// Large keys work at every layer.
func TestLargeKeys(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue[[64 << 10]byte](nil)
	var key [64 << 10]byte
	q.Add(key)
	q.AddAfter(key, time.Hour)
	q.AddRateLimited(key)
	if got, _ := q.Get(); got != key || q.NumRequeues(key) != 1 {
		t.Errorf("a key of 64 KiB has come back as another one, or has %d requeues", q.NumRequeues(key))
	}
	q.Forget(key)
	q.Done(key)
	q.ShutDown()
}

// Locks are unlocked by defer: a caller that recovers a panic of foreign code finds the queue unlocked.
func TestLockIsFreeAfterPanic(t *testing.T) {
	for _, where := range []string{"Queue", "clock", "depth", "latency", "work"} {
		t.Run(where, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				armed, panicked := false, false
				called := func(what string) {
					if what == where && armed {
						armed, panicked = false, true
						panic(what)
					}
				}
				clock := &testkit.HookedClock{WithTicker: testkit.NewFakeClock(), OnNow: func() { called("clock") }}
				o := options[string]{name: "q", provider: &testkit.Recorder{On: called}, clock: clock}
				if where == "Queue" {
					o.order = &listQueue[string]{On: func(string) { called("Queue") }}
				}
				q := build(o)
				for _, call := range []func(){
					func() { q.Add("a") },
					func() { q.AddCause("b", because("1")) },
					func() { q.Get() },
					func() { q.Done("a") },
					func() { q.ShutDown() },
				} {
					armed = true
					_ = testkit.PanicOf(call)
					armed = false
					if !workqueue.FreeLock[string](q) {
						t.Fatal("the lock is held after a panic")
					}
				}
				if q.ShutDown(); !panicked {
					t.Error("nothing has panicked")
				}
			})
		})
	}
}

// aside calls f on a goroutine of its own, which f may end by a panic or, like t.FailNow in a handler, by
// runtime.Goexit.
func aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	<-done
}

// A worker whose goroutine ends without Done, by runtime.Goexit or a panic that is recovered, or never
// comes back, takes its key with it and nothing else: no one else gets the key, an Add of it is kept, other
// keys go on, a drain waits and can be given up. When Done is called after all, the key comes again.
func TestWorkerThatNeverCallsDone(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		for _, end := range []func(){runtime.Goexit, func() { panic("handler") }} {
			q.Add("a")
			aside(func() {
				q.Get()
				end()
			})
			q.Add("a")
			q.Add("b")
			process(t, q, "b")
			if st := q.Stats(); st.Processing != 1 || st.Queued != 0 {
				t.Errorf("Stats() = %+v, want 1 processing", st)
			}
			q.Done("a")
			process(t, q, "a")
		}
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := q.ShutDownContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ShutDownContext() = %v, want the context's error", err)
		}
		q.Done("a")
		process(t, q, "a")
		wantShutDown(t, q)
	})
}

// hookedContext calls a function before each of two methods.
type hookedContext struct {
	context.Context
	onErr, onDone func()
}

func (c *hookedContext) Err() error {
	c.onErr()
	return c.Context.Err()
}

func (c *hookedContext) Done() <-chan struct{} {
	c.onDone()
	return c.Context.Done()
}

// A context's methods run without the lock: they may call the queue.
func TestContextIsForeignCode(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("a")
		fine := func() { q.Len() }
		ctx := &hookedContext{Context: t.Context(), onErr: fine, onDone: fine}
		if key, err := q.GetContext(ctx); key != "a" || err != nil {
			t.Errorf("GetContext() = %q, %v with a context that calls the queue", key, err)
		}
		q.Done("a")
		q.ShutDown()
	})
}
