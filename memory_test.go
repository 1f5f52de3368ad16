package workqueue_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The limits of this file are promises. They are about a million keys; what the keys' strings point to
// is there before and counts for nothing.

const million = 1_000_000

func skipMemory(t *testing.T) {
	t.Helper()
	if testkit.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	if testing.Short() {
		t.Skip("a million keys take seconds")
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

type pair struct{ namespace, name string }

func TestWarmOperationsDoNotAllocate(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	t.Run("string", func(t *testing.T) { testAllocs(t, func(i int) string { return fmt.Sprint("key ", i) }) })
	t.Run("struct", func(t *testing.T) { testAllocs(t, func(i int) pair { return pair{"namespace", fmt.Sprint(i)} }) })
	t.Run("pointer", func(t *testing.T) { testAllocs(t, func(i int) *int { return &i }) })
	t.Run("any", func(t *testing.T) { testAllocs(t, func(i int) any { return &i }) })
}

func testAllocs[T comparable](t *testing.T, keyOf func(int) T) {
	const n = 100
	var keys [n]T
	for i := range keys {
		keys[i] = keyOf(i)
	}
	zero := func(what string, f func()) {
		t.Helper()
		f() // warms it
		if a := testing.AllocsPerRun(200, f); a != 0 {
			t.Errorf("%s: %v allocations", what, a)
		}
	}
	for _, named := range []bool{false, true} {
		o := options[T]{limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[T](time.Hour, 2*time.Hour)}
		if named {
			o.name, o.provider = "q", silent{}
		}
		q := o.rateLimiting()
		what := func(s string) string { return fmt.Sprintf("%s, metrics: %v", s, named) }
		process := func() {
			for range n {
				key, _ := q.Get()
				q.Done(key)
			}
		}
		zero(what("Add, Get, Done"), func() {
			q.Add(keys[0])
			key, _ := q.Get()
			q.Done(key)
		})
		zero(what("many Add, Get, Done"), func() {
			for _, key := range keys {
				q.Add(key)
			}
			process()
		})
		zero(what("Add while processing"), func() {
			q.Add(keys[0])
			key, _ := q.Get()
			q.Add(key)
			q.Done(key)
			key, _ = q.Get()
			q.Done(key)
		})
		q.Add(keys[0])
		zero(what("Add of a queued key"), func() { q.Add(keys[0]) })
		zero(what("Done of a key that is not held"), func() { q.Done(keys[0]) })
		zero(what("Len"), func() { q.Len() })
		if !named { // The histograms of Stats are copies.
			zero(what("Stats"), func() { q.(workqueue.Extended[T]).Stats() })
		}
		q.AddAfter(keys[1], time.Hour)
		zero(what("AddAfter of a waiting key"), func() { q.AddAfter(keys[1], 2*time.Hour) })
		zero(what("AddAfter of a waiting key, earlier"), func() { q.AddAfter(keys[1], time.Minute) })
		q.AddRateLimited(keys[2])
		zero(what("AddRateLimited, Forget"), func() {
			q.AddRateLimited(keys[2])
			q.NumRequeues(keys[2])
			q.Forget(keys[2])
		})
		q.ShutDown()
	}
}

// Delayed keys that come and go: the heap and its loop keep what they need. (The loop allocates when it
// is started, for a queue in which no key waits, so one does.)
func TestDelayedKeysDoNotAllocate(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	q := workqueue.NewTypedDelayingQueue[int]()
	defer q.ShutDown()
	q.AddAfter(-1, time.Hour)
	cycle := func() {
		for key := range 50 {
			q.AddAfter(key, time.Duration(1+key))
		}
		for range 50 {
			key, _ := q.Get()
			q.Done(key)
		}
	}
	cycle()
	if a := testing.AllocsPerRun(100, cycle); a > 1 {
		t.Errorf("%v allocations for 50 delayed keys", a)
	}
}

// silent is a provider whose metrics do nothing.
type silent struct{}

func (silent) Inc()            {}
func (silent) Dec()            {}
func (silent) Set(float64)     {}
func (silent) Observe(float64) {}

func (silent) NewDepthMetric(string) workqueue.GaugeMetric            { return silent{} }
func (silent) NewAddsMetric(string) workqueue.CounterMetric           { return silent{} }
func (silent) NewLatencyMetric(string) workqueue.HistogramMetric      { return silent{} }
func (silent) NewWorkDurationMetric(string) workqueue.HistogramMetric { return silent{} }
func (silent) NewRetriesMetric(string) workqueue.CounterMetric        { return silent{} }
func (silent) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return silent{}
}
func (silent) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return silent{}
}

func TestForgottenKeysAreGarbage(t *testing.T) {
	const n = 3000
	for name, limiter := range map[string]workqueue.TypedRateLimiter[*testkit.Object]{
		"exponential": workqueue.DefaultTypedItemBasedRateLimiter[*testkit.Object](),
		"fast slow":   workqueue.NewTypedItemFastSlowRateLimiter[*testkit.Object](1, 2, 3),
		"max of":      workqueue.DefaultTypedControllerRateLimiter[*testkit.Object](),
	} {
		t.Run(name, func(t *testing.T) {
			var c testkit.Garbage
			keys := make([]*testkit.Object, n)
			for i := range keys {
				keys[i] = c.Object()
				limiter.When(keys[i])
			}
			for i := range keys {
				limiter.NumRequeues(keys[i])
				limiter.Forget(keys[i])
				keys[i] = nil
			}
			c.Want(t, "forgotten keys", n)
			runtime.KeepAlive(limiter)
		})
	}
}

// Large keys work at every layer, and allocate nothing when they come and go where a slab of keys begins.
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

	type large [600]byte
	fifo := workqueue.NewTyped[large]()
	add := func(i int) { fifo.Add(large{byte(i), byte(i >> 8)}) }
	next := 0
	for ; next < 511; next++ { // One slab has room for so many, which stay.
		add(next)
		fifo.Get()
	}
	cycle := func() {
		add(next)
		next++
		got, _ := fifo.Get()
		fifo.Done(got)
	}
	if allocs := testing.AllocsPerRun(100, cycle); allocs != 0 {
		t.Errorf("%v allocations a cycle at the edge of a slab", allocs)
	}
	fifo.ShutDown()
}
