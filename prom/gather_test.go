package prom_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// What the provider gathers itself is what a registry makes of it, to the order of everything.
func TestGather(t *testing.T) {
	for name, opts := range map[string]prom.Options{
		"plain":  {},
		"native": {NativeHistogramBucketFactor: 1.5},
		"labels": {
			Namespace: "space", ControllerLabel: true, ConstLabels: prometheus.Labels{"a": "1", "o": "2", "z": "3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(opts)
			wantGathered(t, b, 0)
			for i := range 12 {
				q := b.queue(fmt.Sprint("q", i))
				defer q.ShutDown()
				for n := range i {
					q.Add(fmt.Sprint(n))
					b.clock.Step(time.Duration(n) * time.Millisecond)
				}
				process(t, q, i/2)
				if i%3 == 0 {
					q.ShutDown()
				}
			}
			wantGathered(t, b, 11)
			b.provider.NewDepthMetric("pushed").Inc()
			b.provider.NewLatencyMetric("pushed").Observe(1)
			q := priorityqueue.New(priorityqueue.Config[int]{Name: "p", MetricsProvider: b.provider, Clock: b.clock})
			defer q.ShutDown()
			for _, priority := range []int{9, 10, -1, -20, 100} {
				q.AddWithOpts(priorityqueue.AddOpts{Priority: priority}, priority)
			}
			wantGathered(t, b, 12)
		})
	}
}

func wantGathered(t *testing.T, b *bench, families int) {
	t.Helper()
	want, err := b.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.provider.Gather()
	if err != nil || len(got) != families || len(want) != families {
		t.Fatalf("%d families, %v; the registry has %d, want %d", len(got), err, len(want), families)
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("got %v\nwant %v", got[i], want[i])
		}
	}
}

// Most of what a scrape costs us is the memory that it takes, and the collector for that.
func TestMemoryOfAScrape(t *testing.T) {
	const names, maxObjects, maxBytes = 1000, 13, 3500
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
	for range 5 { // What others allocate meanwhile is counted too, so the least is what we do.
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
		t.Errorf("a name takes %.1f objects and %.0f bytes, want at most %d and %d", objects, bytes, maxObjects, maxBytes)
	}
}
