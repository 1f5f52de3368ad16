package prom_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// manyQueues registers n queues, each with a name of its own and a few keys in every state.
func manyQueues(tb testing.TB, n int, opts prom.Options) (*prometheus.Registry, []queue) {
	registry := prometheus.NewRegistry()
	p := prom.NewProvider(registry, opts)
	var queues []queue
	for i := range n {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
			Name: fmt.Sprintf("queue-%d", i), MetricsProvider: p,
		}).(queue)
		queues = append(queues, q)
		tb.Cleanup(q.ShutDown)
		for _, key := range []string{"done", "held", "queued"} {
			q.Add(key)
		}
		for range 2 {
			q.Get()
		}
		q.Done("done")
	}
	return registry, queues
}

// BenchmarkScrape scrapes many queues with as many names through a registry: only what is gathered, and with
// what promhttp makes of it, which is text (of native histograms: protobuf) that Prometheus asks to be
// compressed. Unless they are idle, all queues have worked since the last scrape. The CPU time is that of all
// threads, with that of the collector.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		for kind, opts := range map[string]prom.Options{
			"classic": {},
			"native":  {Buckets: []float64{}, NativeHistogramBucketFactor: 1.1},
		} {
			b.Run(fmt.Sprintf("queues=%d/buckets=%s", n, kind), func(b *testing.B) {
				registry, queues := manyQueues(b, n, opts)
				gather := func() {
					if families, err := registry.Gather(); err != nil || len(families) != 11 {
						b.Fatalf("%d families, %v", len(families), err)
					}
				}
				b.Run("step=gather/state=idle", func(b *testing.B) { measure(b, nil, gather) })
				b.Run("step=gather/state=busy", func(b *testing.B) { measure(b, queues, gather) })
				b.Run("step=http", func(b *testing.B) { measure(b, queues, serve(b, registry, kind, "identity")) })
				b.Run("step=gzip", func(b *testing.B) { measure(b, queues, serve(b, registry, kind, "gzip")) })
			})
		}
	}
}

// measure calls scrape b.N times and reports its CPU time. Before each call each of the queues hands out a
// key.
func measure(b *testing.B, queues []queue, scrape func()) {
	b.ReportAllocs()
	cpu := time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		for _, q := range queues {
			q.Add("done")
			q.Add("queued")
			for range q.Len() - 1 {
				key, _ := q.Get()
				q.Done(key)
			}
		}
		before := cpuTime(b)
		b.StartTimer()
		scrape()
		cpu += cpuTime(b) - before
	}
	b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

func serve(b *testing.B, g prometheus.Gatherer, kind, encoding string) func() {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept-Encoding", encoding)
	if kind == "native" { // The text format has no native buckets.
		request.Header.Set("Accept",
			"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	}
	handler := promhttp.HandlerFor(g, promhttp.HandlerOpts{})
	return func() {
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

// BenchmarkScrape measures how long ten thousand names take. This test is for what grows faster than their
// number, so its limit suits a slow and busy machine and the race detector.
func TestTenThousandQueues(t *testing.T) {
	const n, limit = 10_000, 5 * time.Second
	registry, _ := manyQueues(t, n, prom.Options{})
	fastest := time.Duration(math.MaxInt64)
	for range 3 {
		before := cpuTime(t)
		families, err := registry.Gather()
		fastest = min(fastest, cpuTime(t)-before)
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
		t.Errorf("scraping %d queues takes %v of CPU time", n, fastest)
	}
}

// Most of what a scrape costs is the memory that it takes, and the collector for that.
func TestMemoryOfAScrape(t *testing.T) {
	const names, maxObjects, maxBytes = 1000, 18, 4500
	b := newBench(prom.Options{})
	for i := range names {
		q := b.queue(fmt.Sprint(i))
		defer q.ShutDown()
		q.Add("a")
		b.clock.Step(time.Millisecond)
		q.Get()
		b.clock.Step(time.Millisecond)
		q.Done("a")
	}
	objects, bytes := math.Inf(1), math.Inf(1)
	for range 5 { // Other goroutines may allocate meanwhile, so the least counts.
		metrics := make(chan prometheus.Metric, 11*names)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.provider.Collect(metrics)
		runtime.ReadMemStats(&after)
		if len(metrics) != cap(metrics) {
			t.Fatalf("%d metrics, want %d", len(metrics), cap(metrics))
		}
		objects = min(objects, float64(after.Mallocs-before.Mallocs)/names)
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/names)
	}
	if objects > maxObjects || bytes > maxBytes {
		t.Errorf("a name takes %.1f objects and %.0f bytes, want at most %d and %d", objects, bytes,
			maxObjects, maxBytes)
	}
}
