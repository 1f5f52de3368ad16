package prom_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/prom"
)

// This test is for what grows faster than the number of queues, so its limit suits a slow and busy machine.
func TestTenThousandQueues(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector takes time of its own")
	}
	const n, limit = 10_000, 5 * time.Second
	registry := prometheus.NewRegistry()
	p := prom.NewProvider(registry, prom.Options{})
	for i := range n {
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: fmt.Sprint("queue ", i),
			MetricsProvider: p})
		defer q.ShutDown()
		q.Add("done")
		q.Add("held")
		q.Add("queued")
		q.Get()
		q.Get()
		q.Done("done")
	}
	fastest := time.Duration(math.MaxInt64)
	for range 3 {
		began := time.Now()
		families, err := registry.Gather()
		fastest = min(fastest, time.Since(began))
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
