package workqueue_test

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
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
