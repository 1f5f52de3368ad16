package bench

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkScrape gathers the metrics of queues in one registry. A few keys have gone through each queue.
// BenchmarkCycleMetrics has the cost of metrics that are pushed at each change, and twice a second.
func BenchmarkScrape(b *testing.B) {
	keys := keysOf(10, stringKey)
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("queues=%d", n), func(b *testing.B) {
			for _, i := range scrapedImpls[string]() {
				b.Run("impl="+i.name, func(b *testing.B) {
					registry := prometheus.NewRegistry()
					newQueue := i.in(registry)
					queues := keysOf(n, func(i int) queue[string] { return newQueue(fmt.Sprint("queue ", i)) })
					for _, q := range queues {
						for _, key := range keys {
							q.Add(key)
						}
						drain(q, len(keys))
					}
					b.ReportAllocs()
					for b.Loop() {
						if families, err := registry.Gather(); err != nil || len(families[0].Metric) != n {
							b.Fatalf("%d families, %v", len(families), err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/queue")
					b.StopTimer()
					for _, q := range queues {
						q.ShutDown()
					}
				})
			}
		})
	}
}
