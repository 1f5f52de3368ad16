package redisqueue

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkCycle adds, gets and finishes distinct keys.
func BenchmarkCycle(b *testing.B) {
	s := startServer(b)
	for _, goroutines := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			q := newTestQueue(b, s.client(), Config[string]{Name: fmt.Sprint("bench", goroutines)})
			var next atomic.Int64
			var wg sync.WaitGroup
			calls := q.Info().Calls
			for range goroutines {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						q.Add(fmt.Sprintf("order/%d", n))
						key, _ := q.Get()
						q.Done(key)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
			b.ReportMetric(float64(q.Info().Calls-calls)/float64(b.N), "calls/key")
		})
	}
}
