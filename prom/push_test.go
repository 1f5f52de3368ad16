package prom_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/prom"
)

// Callers with the same name share its metrics, as in Kubernetes, and what they push adds to the numbers of
// the queues with that name.
func TestPushersAndQueuesOfOneName(t *testing.T) {
	for name, opts := range map[string]prom.Options{
		"classic": {}, "native": {NativeHistogramBucketFactor: 1.1}, "no buckets": {Buckets: []float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(opts)
			p := b.provider
			p.NewUnfinishedWorkSecondsMetric("q").Set(10)
			p.NewUnfinishedWorkSecondsMetric("q").Set(30)
			p.NewLongestRunningProcessorSecondsMetric("q").Set(7)
			p.NewDepthMetric("q").Inc()
			p.NewDepthMetric("q").Inc()
			p.NewAddsMetric("q").Inc()
			p.NewAddsMetric("q").Inc()
			p.NewRetriesMetric("q").Inc()
			p.NewLatencyMetric("q").Observe(1)
			p.NewLatencyMetric("q").Observe(1e6)
			want := map[string]float64{
				"depth": 2, "unfinished_work_seconds": 30, "longest_running_processor_seconds": 7, "adds_total": 2,
				"retries_total": 1, "queue_duration_seconds": 2, "queue_duration_seconds_sum": 1000001,
			}
			b.want(t, "pushed", "q", want)
			q := b.queue("q")
			q.Add("a")
			q.Get()
			b.clock.Step(8 * time.Second)
			q.Add("b")
			q.AddAfter("c", time.Hour)
			both := all(map[string]float64{
				"depth": 3, "unfinished_work_seconds": 38, "longest_running_processor_seconds": 8, "adds_total": 4,
				"retries_total": 2, "waiting_keys": 1, "queue_duration_seconds": 3, "queue_duration_seconds_sum": 1000001,
			})
			for range 2 {
				b.want(t, "and read", "q", both)
			}
			h := b.get(t, "queue_duration_seconds", "q").Histogram
			wantBuckets(t, h, 1, 1, 2)
			process(t, q, 1)
			q.Done("a")
			q.ShutDown()
			ended := grown(map[string]float64{
				"adds_total": 4, "retries_total": 2, "dropped_keys_total": 1, "queue_duration_seconds": 4,
				"queue_duration_seconds_sum": 1000001,
				"work_duration_seconds":      2, "work_duration_seconds_sum": 8,
			})
			ended["depth"], ended["unfinished_work_seconds"], ended["longest_running_processor_seconds"] = 2, 30, 7
			b.want(t, "the queue has ended", "q", ended)
		})
	}
}

func TestConcurrentPush(t *testing.T) {
	b := newBench(prom.Options{})
	depth := b.provider.NewDepthMetric("q")
	var callers sync.WaitGroup
	var pushed atomic.Int64
	stop := make(chan struct{})
	for range 8 {
		callers.Go(func() {
			adds, latency := b.provider.NewAddsMetric("q"), b.provider.NewLatencyMetric("q")
			for {
				select {
				case <-stop:
					return
				default:
				}
				adds.Inc()
				depth.Inc()
				latency.Observe(1)
				pushed.Add(1)
			}
		})
	}
	for range 10 {
		text(t, b)
	}
	close(stop)
	callers.Wait()
	n := float64(pushed.Load())
	b.want(t, "all pushed", "q", map[string]float64{
		"depth": n, "adds_total": n, "queue_duration_seconds": n, "queue_duration_seconds_sum": n,
	})
}

// A scrape reads without a lock what was there when it began, so a metric that is made meanwhile must not be
// written into that: the next scrape is the first to see it.
func TestMetricIsMadeDuringAScrape(t *testing.T) {
	b := newBench(prom.Options{})
	p := b.provider
	p.NewDepthMetric("q")
	p.WatchQueue("q", func() workqueue.Stats {
		p.NewAddsMetric("q").Inc()
		return workqueue.Stats{}
	})
	for scrape := range 3 {
		// The metric is made during the first scrape, and all three add 1 to it. They read it after that.
		want := float64(scrape + 1)
		if scrape == 0 {
			want = 0
		}
		if n := b.get(t, "adds_total", "q").Counter.GetValue(); n != want {
			t.Errorf("scrape %d: adds_total is %v, want %v", scrape, n, want)
		}
	}
}

// An interface that the metrics lack.
type resetter interface{ Reset() }

// ExampleFor has interfaces that fit. In peers/metrics client-go's queues push to what For returns.
func TestForOfAnotherInterface(t *testing.T) {
	testkit.WantPanic(t, "For", func() {
		prom.For[theirGauge, resetter, theirHistogram, theirSettable](prom.NewProvider(nil, prom.Options{}))
	}, "prom: ", "resetter")
}
