package bench

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkSaturatedLateness measures how late delayed keys come in a program that leaves no processor idle:
// four producers add keys in a loop, and eight workers handle them, on two processors. An iteration is a
// hundred delayed keys within 50 ms, each due at a time of its own. What a key waits for, beside the queue,
// is the scheduler: a goroutine that does not block keeps its processor for 10 ms.
func BenchmarkSaturatedLateness(b *testing.B) {
	const producers, workers, perProducer, delayed = 4, 8, 1000, 100
	// Controller-runtime's queue is left out: under this load an iteration took more than 40 s.
	all := slices.DeleteFunc(impls[int](), func(i impl[int]) bool { return i.name == "controller-runtime" })
	everyImpl(b, all, func(b *testing.B, q queue[int]) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
		var stop atomic.Bool
		var running sync.WaitGroup
		for p := range producers {
			running.Go(func() {
				for i := 0; !stop.Load(); i++ {
					q.Add(delayed + p*perProducer + i%perProducer)
				}
			})
		}
		var due [delayed]atomic.Int64 // The time since start at which the key is due, in nanoseconds.
		start := time.Now()
		late := make(chan time.Duration, delayed)
		for range workers {
			running.Go(func() {
				for {
					key, shutdown := q.Get()
					if shutdown {
						return
					}
					if key < delayed {
						late <- time.Since(start) - time.Duration(due[key].Load())
					}
					q.Done(key)
				}
			})
		}
		var all []time.Duration
		for b.Loop() {
			for key, d := range delaysOf(delayed) {
				d = time.Millisecond + d%(49*time.Millisecond)
				due[key].Store(int64(time.Since(start) + d))
				q.AddAfter(key, d)
			}
			for range delayed {
				all = append(all, <-late)
			}
		}
		stop.Store(true)
		q.ShutDown()
		running.Wait()
		b.ReportMetric(0, "ns/op") // says nothing
		b.ReportMetric(quantile(all, 0.5), "p50-ns")
		b.ReportMetric(quantile(all, 0.99), "p99-ns")
	})
}
