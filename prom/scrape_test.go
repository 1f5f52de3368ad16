package prom_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// manyQueues registers n queues, each of a name of its own and with a few keys in every state.
func manyQueues(tb testing.TB, n int, opts prom.Options) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	p := prom.NewProvider(registry, opts)
	for i := range n {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
			Name: fmt.Sprintf("queue-%d", i), MetricsProvider: p,
		})
		tb.Cleanup(q.ShutDown)
		for _, key := range []string{"done", "held", "queued"} {
			q.Add(key)
		}
		for range 2 {
			q.Get()
		}
		q.Done("done")
	}
	return registry
}

// BenchmarkScrape scrapes many queues of as many names: what a registry makes of them, and the text that
// is sent.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		for kind, opts := range map[string]prom.Options{
			"classic": {},
			"native":  {Buckets: []float64{}, NativeHistogramBucketFactor: 1.1},
		} {
			b.Run(fmt.Sprintf("queues=%d/buckets=%s", n, kind), func(b *testing.B) {
				registry := manyQueues(b, n, opts)
				var gathering time.Duration
				b.ReportAllocs()
				for b.Loop() {
					start := time.Now()
					families, err := registry.Gather()
					gathering += time.Since(start)
					if err != nil {
						b.Fatal(err)
					}
					enc := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeProtoDelim))
					for _, f := range families {
						if err := enc.Encode(f); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(gathering.Microseconds())/1000/float64(b.N), "gather-ms/op")
			})
		}
	}
}

// Ten thousand queues of as many names: BenchmarkScrape says how long that takes. This test is for
// what grows faster than their number, so it allows for a slow and busy machine and the race detector.
func TestTenThousandQueues(t *testing.T) {
	const n, limit = 10_000, 5 * time.Second
	registry := manyQueues(t, n, prom.Options{})
	fastest := time.Hour
	for range 3 {
		start := time.Now()
		families, err := registry.Gather()
		fastest = min(fastest, time.Since(start))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if len(f.Metric) != n {
				t.Fatalf("%d metrics of %s, want %d", len(f.Metric), f.GetName(), n)
			}
		}
	}
	if fastest > limit {
		t.Errorf("scraping %d queues takes %v", n, fastest)
	}
}
