package workqueue_test

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// objectKey is a key as controllers have it.
type objectKey struct{ namespace, name string }

func stringKey(i int) string { return fmt.Sprintf("namespace-%d/name-%d", i%100, i) }

func structKey(i int) objectKey {
	return objectKey{fmt.Sprintf("namespace-%d", i%100), fmt.Sprintf("name-%d", i)}
}

func keysOf[T any](n int, key func(i int) T) []T {
	keys := make([]T, n)
	for i := range keys {
		keys[i] = key(i)
	}
	return keys
}

// reportPerKey reports the time for each of the n keys of an iteration.
func reportPerKey(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
}

// failIfAllocating fails if f, which does something to n keys and has been run before, allocates for them.
// That a queue notes which memory it keeps for its next burst is less than an allocation for fifty keys.
// The collector does not run meanwhile: it takes that memory.
func failIfAllocating(b *testing.B, n int, f func()) {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if a := testing.AllocsPerRun(max(2, 1000/n), f) / float64(n); a > 0.02 {
		b.Errorf("%.2f allocations a key, although the queue is warm", a)
	}
}

// BenchmarkCycle adds n keys and drains them.
func BenchmarkCycle(b *testing.B) {
	benchmarkCycle(b, "string", stringKey)
	benchmarkCycle(b, "struct", structKey)
}

func benchmarkCycle[T comparable](b *testing.B, kind string, key func(i int) T) {
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("key=%s/keys=%d", kind, n), func(b *testing.B) {
			keys := keysOf(n, key)
			queue := workqueue.NewTyped[T]()
			cycle := func() {
				for _, key := range keys {
					queue.Add(key)
				}
				for range keys {
					key, _ := queue.Get()
					queue.Done(key)
				}
			}
			cycle()
			b.ReportAllocs()
			for b.Loop() {
				cycle()
			}
			if st := queue.Stats(); st.Adds != uint64(b.N+1)*uint64(n) || st.Queued+st.Processing != 0 {
				b.Fatalf("not every key came through: %+v", st)
			}
			reportPerKey(b, n)
			failIfAllocating(b, n, cycle)
		})
	}
}

// BenchmarkStory is a cycle of a key that is added with a cause, and of one whose worker waits for its next
// add. A cycle without either is in BenchmarkCycle.
func BenchmarkStory(b *testing.B) {
	queue := workqueue.NewTyped[string]()
	cause := workqueue.Cause{Reason: "Secret default/db changed", Time: time.Unix(0, 0)}
	for _, use := range []string{"nothing", "cause", "added-again"} {
		b.Run("use="+use, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if use == "cause" {
					queue.AddCause("key", cause)
				} else {
					queue.Add("key")
				}
				key, _ := queue.Get()
				if use == "added-again" {
					queue.AddedAgain(key)
				}
				queue.Done(key)
			}
		})
	}
}

// BenchmarkAddDuplicate adds a key that is queued.
func BenchmarkAddDuplicate(b *testing.B) {
	queue := workqueue.NewTyped[string]()
	queue.Add("key")
	b.ReportAllocs()
	for b.Loop() {
		queue.Add("key")
	}
	if queue.Len() != 1 {
		b.Fatalf("%d keys are queued", queue.Len())
	}
	failIfAllocating(b, 1, func() { queue.Add("key") })
}

// BenchmarkContended has producers add distinct keys, and workers process them.
func BenchmarkContended(b *testing.B) {
	for _, c := range []struct{ producers, workers int }{{1, 1}, {4, 4}, {16, 16}, {1, 64}, {64, 1}} {
		b.Run(fmt.Sprintf("producers=%d/workers=%d", c.producers, c.workers), func(b *testing.B) {
			const n = 10_000
			keys := keysOf(n, stringKey)
			b.ReportAllocs()
			for b.Loop() {
				queue := workqueue.NewTyped[string]()
				var producers, workers sync.WaitGroup
				var next, processed atomic.Int64
				for range c.workers {
					workers.Go(func() {
						for {
							key, shutdown := queue.Get()
							if shutdown {
								return
							}
							queue.Done(key)
							processed.Add(1)
						}
					})
				}
				for range c.producers {
					producers.Go(func() {
						for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
							queue.Add(keys[i])
						}
					})
				}
				producers.Wait()
				queue.ShutDownWithDrain()
				workers.Wait()
				if processed.Load() != n {
					b.Fatalf("%d of %d keys were processed", processed.Load(), n)
				}
			}
			reportPerKey(b, n)
		})
	}
}

// BenchmarkAddAfter makes n keys wait, at times in no particular order, and shuts down.
func BenchmarkAddAfter(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			keys := keysOf(n, stringKey)
			b.ReportAllocs()
			for b.Loop() {
				queue := workqueue.NewTypedDelayingQueue[string]()
				for i, key := range keys {
					queue.AddAfter(key, time.Hour+time.Duration(i*7919%n)*time.Second)
				}
				queue.ShutDown()
				if st := queue.(workqueue.Extended[string]).Stats(); st.Dropped != uint64(n) {
					b.Fatalf("%d of %d keys were waiting", st.Dropped, n)
				}
			}
			reportPerKey(b, n)
		})
	}
}

// BenchmarkRequeue has a worker fail once on each key.
func BenchmarkRequeue(b *testing.B) {
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](0, 0))
	defer queue.ShutDown()
	fail := func() {
		queue.AddRateLimited("key")
		key, _ := queue.Get()
		queue.Forget(key)
		queue.Done(key)
	}
	b.ReportAllocs()
	for b.Loop() {
		fail()
	}
	failIfAllocating(b, 1, fail)
}

func TestWarmOperationsDoNotAllocate(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	t.Run("string", func(t *testing.T) { testAllocs(t, func(i int) string { return fmt.Sprint("key ", i) }) })
	t.Run("struct", func(t *testing.T) { testAllocs(t, structKey) })
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

func (silent) Inc()                                                   {}
func (silent) Dec()                                                   {}
func (silent) Set(float64)                                            {}
func (silent) Observe(float64)                                        {}
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
