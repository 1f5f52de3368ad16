package bench

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkDueStorm has n keys come due at the same moment, and measures from that moment until the last of
// them is Done. The clock is the real one, because controller-runtime's queue can have no other.
func BenchmarkDueStorm(b *testing.B) {
	for _, n := range sizes(1000, 100_000, 1_000_000) {
		keys := keysOf(n, stringKey)
		b.Run(fmt.Sprintf("key=string/keys=%d", n), func(b *testing.B) {
			everyMake(b, impls[string](), func(b *testing.B, newQueue func() queue[string]) {
				lead := 50 * time.Millisecond
				var took time.Duration
				for range b.N {
					q, due := dueAtOnce(newQueue, keys, &lead)
					drain(q, n)
					took += time.Since(due)
					q.ShutDown()
				}
				b.ReportMetric(float64(took)/float64(b.N), "ns/op")
				b.ReportMetric(float64(took)/float64(b.N)/float64(n), "ns/key")
			})
		})
	}
}

// dueAtOnce returns a queue in which keys wait for the same moment, and the moment. It makes the lead longer
// until all keys are in well before.
func dueAtOnce(newQueue func() queue[string], keys []string, lead *time.Duration) (queue[string], time.Time) {
	for {
		q, due := newQueue(), time.Now().Add(*lead)
		for _, key := range keys {
			q.AddAfter(key, time.Until(due))
		}
		settle(q, "the last")
		if time.Until(due) > *lead/4 {
			return q, due
		}
		q.ShutDown()
		*lead *= 2
	}
}

// BenchmarkWakeUp measures from the Add of a key until the Get of a worker that sleeps returns it. The worker
// sleeps again, and the queue's goroutines are at rest, before the next one.
func BenchmarkWakeUp(b *testing.B) {
	everyMake(b, impls[int](), func(b *testing.B, newQueue func() queue[int]) {
		q := newQueue()
		var start time.Time
		got := make(chan time.Duration)
		go func() {
			defer close(got)
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				took := time.Since(start)
				q.Done(key)
				got <- took
			}
		}()
		var all []time.Duration
		var sum time.Duration
		for b.Loop() {
			// Nothing tells from outside that the worker sleeps. Where this is too short, its Get is measured awake.
			time.Sleep(20 * time.Microsecond)
			start = time.Now()
			q.Add(1)
			took := <-got
			all = append(all, took)
			sum += took
		}
		b.ReportMetric(float64(sum)/float64(len(all)), "ns/op")
		b.ReportMetric(quantile(all, 0.5), "p50-ns")
		q.ShutDown()
		<-got
	})
}
