package prom_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// manyQueues registers n queues, each of a name of its own and with a few keys in every state.
func manyQueues(tb testing.TB, n int, opts prom.Options) (*prometheus.Registry, *prom.Provider) {
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
	return registry, p
}

// BenchmarkScrape scrapes many queues of as many names, through a registry and without: what is gathered,
// and that with what promhttp makes of it, as text (native histograms: protobuf), which Prometheus wants
// compressed.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		for kind, opts := range map[string]prom.Options{
			"classic": {},
			"native":  {Buckets: []float64{}, NativeHistogramBucketFactor: 1.1},
		} {
			b.Run(fmt.Sprintf("queues=%d/buckets=%s", n, kind), func(b *testing.B) {
				registry, p := manyQueues(b, n, opts)
				for by, g := range map[string]prometheus.Gatherer{"registry": registry, "provider": p} {
					b.Run("by="+by+"/step=gather", func(b *testing.B) {
						b.ReportAllocs()
						for b.Loop() {
							if families, err := g.Gather(); err != nil || len(families) != 11 {
								b.Fatalf("%d families, %v", len(families), err)
							}
						}
					})
					b.Run("by="+by+"/step=http", func(b *testing.B) { serve(b, g, kind, "identity") })
					b.Run("by="+by+"/step=gzip", func(b *testing.B) { serve(b, g, kind, "gzip") })
				}
			})
		}
	}
}

func serve(b *testing.B, g prometheus.Gatherer, kind, encoding string) {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept-Encoding", encoding)
	if kind == "native" {
		request.Header.Set("Accept", accept(protobufFormat))
	}
	handler := promhttp.HandlerFor(g, promhttp.HandlerOpts{})
	b.ReportAllocs()
	for b.Loop() {
		response := &discardingWriter{header: http.Header{}}
		handler.ServeHTTP(response, request)
		if response.status > http.StatusOK || response.n == 0 {
			b.Fatalf("%d bytes, status %d", response.n, response.status)
		}
	}
}

// discardingWriter is an [http.ResponseWriter] that counts bytes.
type discardingWriter struct {
	header    http.Header
	status, n int
}

func (w *discardingWriter) Header() http.Header    { return w.header }
func (w *discardingWriter) WriteHeader(status int) { w.status = status }
func (w *discardingWriter) Write(b []byte) (int, error) {
	w.n += len(b)
	return len(b), nil
}

// Ten thousand queues of as many names: BenchmarkScrape says how long that takes. This test is for
// what grows faster than their number, so it allows for a slow and busy machine and the race detector.
func TestTenThousandQueues(t *testing.T) {
	const n, limit = 10_000, 5 * time.Second
	registry, _ := manyQueues(t, n, prom.Options{})
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
