package workqueue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
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

// lockedLog is what was logged by slog.Default.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func captureLog(t *testing.T) *lockedLog {
	log := &lockedLog{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(line)
}

// take returns what was logged since the last call.
func (l *lockedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return l.buf.String()
}

// Workers whose loops end with a context leave keys behind. ShutDownWithDrain must not wait for them forever,
// as client-go's does not: 10 s after the last sign of a worker it logs, drops the keys, and returns.
func TestDrainWithoutWorkersEnds(t *testing.T) {
	log := captureLog(t)
	everyLayer(t, func(t *testing.T, build builder[int]) {
		q := build(options[int]{})
		for key := range 1000 {
			q.Add(key)
		}
		began := time.Now()
		drain := testkit.Start(func() time.Duration { q.ShutDownWithDrain(); return time.Since(began) })
		for range 3 { // Slow workers are workers.
			time.Sleep(9 * time.Second)
			key, _ := q.Get()
			time.Sleep(time.Minute)
			drain.MustBlock(t, "a drain while a worker holds a key, or was there lately")
			q.Done(key)
		}
		time.Sleep(10*time.Second - 1)
		drain.MustBlock(t, "a drain before 10 s")
		if st := q.Stats(); st.Queued != 997 || st.Dropped != 0 {
			t.Errorf("Stats() = %+v", st)
		}
		time.Sleep(time.Nanosecond)
		drain.MustReturn(t, "a drain that nobody helps")
		if st := q.Stats(); st.Queued != 0 || st.Dropped != 997 {
			t.Errorf("Stats() = %+v, want 997 dropped", st)
		}
		q.ShutDownWithDrain()
		if lines := log.take(); strings.Count(lines, "keys=997\n") != 1 || strings.Count(lines, "\n") != 1 {
			t.Errorf("log: %q", lines)
		}
	})
}

// ShutDownContext waits as long as its context says, drops nothing, and logs once that nobody comes.
func TestDrainWithContextWithoutWorkers(t *testing.T) {
	log := captureLog(t)
	everyLayer(t, func(t *testing.T, build builder[int]) {
		q := build(options[int]{})
		q.Add(1)
		q.Add(2)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			began := time.Now()
			if err := q.ShutDownContext(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Hour {
				t.Errorf("ShutDownContext() = %v after %v", err, time.Since(began))
			}
			cancel()
		}
		if st := q.Stats(); st.Queued != 2 || st.Dropped != 0 {
			t.Errorf("Stats() = %+v", st)
		}
		if lines := log.take(); strings.Count(lines, "keys=2\n") != 1 {
			t.Errorf("log: %q", lines)
		}
		process(t, q, 1, 2)
		if err := q.ShutDownContext(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A worker may take the last key just before a drain would log it. If the key is left later, it is logged.
func TestDrainLogsWhenKeysAreLeft(t *testing.T) {
	log := captureLog(t)
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTyped[string]()
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		drain := startDrain(q)
		drain.MustBlock(t, "a drain while a worker holds a key")
		q.LogLeft() // It has waited for 10 s, and then the worker has taken the key.
		q.Done("a")
		time.Sleep(10 * time.Second)
		drain.MustReturn(t, "a drain that nobody helps")
		if lines := log.take(); strings.Count(lines, "keys=1\n") != 1 || strings.Count(lines, "\n") != 1 {
			t.Errorf("log: %q", lines)
		}
	})
}

// The 10 s are those of the queue's clock, and the log is that of the delaying queue's configuration.
func TestDrainWithoutWorkersOnFakeClock(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[int]) {
		clock := testkit.NewFakeClock()
		q := build(options[int]{clock: clock})
		q.Add(1)
		drain := testkit.Start(func() bool { q.ShutDownWithDrain(); return true })
		drain.MustBlock(t, "a drain at once")
		time.Sleep(time.Hour)
		clock.Step(9 * time.Second)
		drain.MustBlock(t, "a drain after 9 s of the clock")
		clock.Step(time.Second)
		drain.MustReturn(t, "a drain after 10 s of the clock")
		if _, shutdown := q.Get(); !shutdown {
			t.Error("Get() hands out a key that was dropped")
		}
	})
}

// listQueue is a user's workqueue.Queue, as simple as possible.
type listQueue[T comparable] struct {
	// Keys are the queued keys, and Touched those that were added again meanwhile.
	Keys, Touched []T
	// On, unless nil, is called at the start of every method, with the method's name.
	On func(method string)
}

func (l *listQueue[T]) call(method string) {
	if l.On != nil {
		l.On(method)
	}
}

func (l *listQueue[T]) Touch(item T) { l.call("Touch"); l.Touched = append(l.Touched, item) }
func (l *listQueue[T]) Push(item T)  { l.call("Push"); l.Keys = append(l.Keys, item) }
func (l *listQueue[T]) Len() int     { l.call("Len"); return len(l.Keys) }

func (l *listQueue[T]) Pop() T {
	l.call("Pop")
	item := l.Keys[0]
	l.Keys = slices.Delete(l.Keys, 0, 1)
	return item
}

func TestTouch(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		order := &listQueue[string]{}
		var calls []string
		order.On = func(method string) {
			if method != "Len" {
				calls = append(calls, method)
			}
		}
		q := build(options[string]{order: order})
		for _, step := range []struct {
			what, want string
			do         func()
		}{
			{"Add", "Push", func() { q.Add("a") }},
			{"Add of a queued key", "Touch Touch", func() { q.Add("a"); q.Add("a") }},
			{"Get", "Pop", func() { hold(t, q, "a") }},
			{"Add of a key that a worker holds", "", func() { q.Add("a"); q.Add("a") }},
			{"Done of a dirty key", "Push", func() { q.Done("a") }},
			{"Add of a key that is queued again", "Touch", func() { q.Add("a") }},
			{"Done of a queued key", "", func() { q.Done("a") }},
			{"Get and Done", "Pop", func() { process(t, q, "a") }},
			{"Add after shutdown", "", func() { q.ShutDown(); q.Add("b") }},
		} {
			calls = nil
			if step.do(); strings.Join(calls, " ") != step.want {
				t.Errorf("%s: calls %q, want %q", step.what, calls, step.want)
			}
		}
		if !slices.Equal(order.Touched, []string{"a", "a", "a"}) {
			t.Errorf("touched %q", order.Touched)
		}
	})
}

// hoarder is a Queue that hands out each key several times.
type hoarder struct{ listQueue[string] }

func (h *hoarder) Push(item string) { h.Keys = append(h.Keys, item, item, item) }

// A Queue that has a key twice must not make two workers hold it.
func TestCustomQueueThatRepeatsKeys(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{order: &hoarder{}})
		q.Add("a")
		hold(t, q, "a")
		second := startGet[string](q)
		second.MustBlock(t, "Get of a key that is held, and still in the custom Queue")
		// As if it had been added meanwhile, once.
		if st := q.Stats(); st.Processing != 1 || st.Again != 1 || st.Adds != 2 {
			t.Errorf("Stats() = %+v, want 1 processing, and again, of 2 adds", st)
		}
		q.ShutDown()
		if g := second.MustReturn(t, "Get"); g.err == nil {
			t.Errorf("two workers hold key %q", g.key)
		}
		q.Done("a")
	})
}

// What such a Queue repeats is an add like others: it stays when the retry of the key is taken back.
func TestCustomQueueThatRepeatsAFailingKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := &listQueue[string]{}
		q := options[string]{order: order}.rateLimiting().(workqueue.ExtendedRateLimiting[string])
		defer q.ShutDown()
		q.Add("a")
		hold(t, q, "a")
		q.Fail(t.Context(), "a", workqueue.Failure{AtLeast: time.Minute})
		time.Sleep(time.Minute) // The retry comes due.
		synctest.Wait()
		order.Keys = append(order.Keys, "a")
		q.Add("b")
		hold(t, q, "b")
		q.Fail(t.Context(), "a", workqueue.Failure{Terminal: true})
		q.Done("a")
		process(t, q, "a")
		q.Done("b")
	})
}

// A Queue may have keys that were never added. They are handed out like others.
func TestCustomQueueWithItsOwnKeys(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{order: &listQueue[string]{Keys: []string{"x", "y"}}})
		q.Add("a")
		wantLen(t, q, 3)
		hold(t, q, "x")
		if st := q.Stats(); st.Processing != 1 || st.Queued != 2 {
			t.Errorf("Stats() = %+v, want 1 processing, 2 queued", st)
		}
		q.Add("x")
		q.Done("x")
		drain := startDrain[string](q)
		drain.MustBlock(t, "drain")
		process(t, q, "y", "a", "x")
		drain.MustReturn(t, "drain")
		if st := q.Stats(); st.Processing != 0 || st.Queued != 0 || st.UnmatchedDones != 0 || st.Adds != 4 {
			t.Errorf("Stats() = %+v, want nothing left of 4 adds", st)
		}
	})
}

// dropper is a Queue that takes no keys.
type dropper struct{}

func (dropper) Touch(int) {}
func (dropper) Push(int)  {}
func (dropper) Len() int  { return 0 }
func (dropper) Pop() int  { panic("Pop of an empty Queue") }

// Keys that a custom Queue drops do not make a drain wait. (client-go's drain does not wait for them either.)
func TestQueueThatDropsKeysCanBeDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := options[int]{order: dropper{}}.typed()
		q.Add(1)
		q.ShutDownWithDrain()
		if st := q.Stats(); st.Queued != 0 || !st.ShuttingDown {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

// A metric of such keys must not drift: as many keys leave as have come.
func TestMetricsOfCustomQueues(t *testing.T) {
	for name, order := range map[string]func() workqueue.Queue[string]{
		"own keys": func() workqueue.Queue[string] { return &listQueue[string]{Keys: []string{"x", "y"}} },
		"repeats":  func() workqueue.Queue[string] { return &hoarder{} },
	} {
		t.Run(name, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				r := &testkit.Recorder{}
				c := testkit.NewFakeClock()
				q := build(options[string]{name: "q", provider: r, clock: c, order: order()})
				c.Step(1000)
				for i := range 5 {
					q.Add(fmt.Sprint(i))
				}
				for q.Len() > 0 {
					key, _ := q.Get()
					q.Done(key)
				}
				q.ShutDown()
				for _, gauge := range []string{"depth", "unfinished", "longest"} {
					if v := r.Value(gauge); v != 0 {
						t.Errorf("%s = %v after everything was processed", gauge, v)
					}
				}
				for _, latency := range r.Observations("latency") {
					if latency != 0 {
						t.Errorf("a latency of %v s, and no time passed since the adds", latency)
					}
				}
			})
		})
	}
}
