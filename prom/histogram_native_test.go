package prom_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// trickyTimes are at and around the bounds of all kinds of buckets, and as long and short as can be.
func trickyTimes() []time.Duration {
	times := []time.Duration{0, 1, 2, 3, math.MaxInt64, math.MaxInt64 - 1, 1000 * time.Second, 10 * time.Second}
	for e := -30.0; e <= 33; e += 0.125 {
		ns := math.Exp2(e) * 1e9
		times = append(times, time.Duration(ns), time.Duration(ns)+1, max(0, time.Duration(ns)-1))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		times = append(times, time.Duration(math.Exp2(63*random.Float64())))
	}
	for d := time.Duration(1); d <= 1000*time.Second; d *= 10 {
		times = append(times, d-1, d, d+1)
	}
	return times
}

// With any buckets, a queue's histogram is equal to one of client_golang that has observed the same
// times.
func TestNativeHistograms(t *testing.T) {
	for _, factor := range []float64{0, 1.0001, 1.005, 1.1, 1.2, 1.5, 2, 3, 4, 20, 70000} {
		for name, classic := range map[string][]float64{
			"none": {}, "Kubernetes": prometheus.ExponentialBuckets(10e-9, 10, 10),
			"odd": {-1, 0, 1e-10, 0.75, 1, 8, 1e5, 1e12},
		} {
			if factor == 0 && len(classic) == 0 {
				continue // client_golang would take others
			}
			t.Run(fmt.Sprintf("factor=%v/classic=%s", factor, name), func(t *testing.T) {
				b := newBench(prom.Options{Buckets: classic, NativeHistogramBucketFactor: factor})
				peer := prometheus.NewHistogram(prometheus.HistogramOpts{
					Name: "peer", Buckets: classic, NativeHistogramBucketFactor: factor,
				})
				q, pushed := b.queue("q"), b.provider.NewWorkDurationMetric("pushed")
				defer q.ShutDown()
				start := b.clock.Now()
				for _, d := range trickyTimes() {
					q.Add("a")
					q.Get()
					b.clock.SetTime(start.Add(d))
					q.Done("a")
					b.clock.SetTime(start)
					peer.Observe(d.Seconds())
					pushed.Observe(d.Seconds())
				}
				var want dto.Metric
				if err := peer.Write(&want); err != nil {
					t.Fatal(err)
				}
				want.Histogram.CreatedTimestamp = nil
				sum := want.Histogram.GetSampleSum()
				for _, name := range []string{"q", "pushed"} {
					got := proto.Clone(b.get(t, "work_duration_seconds", name).Histogram).(*dto.Histogram)
					if math.Abs(got.GetSampleSum()-sum) > sum*1e-12 {
						t.Errorf("sum of %s = %v, want %v", name, got.GetSampleSum(), sum)
					}
					got.SampleSum = &sum
					if !proto.Equal(got, want.Histogram) {
						t.Errorf("%s:\n%v\nwant\n%v", name, got, want.Histogram)
					}
				}
			})
		}
	}
}

// A histogram without any time must be seen to be a native one.
func TestEmptyNativeHistogram(t *testing.T) {
	b := newBench(prom.Options{Buckets: []float64{}, NativeHistogramBucketFactor: 1.1})
	defer b.queue("q").ShutDown()
	h := b.get(t, "queue_duration_seconds", "q").Histogram
	if h.GetZeroThreshold() == 0 || h.Schema == nil || h.GetSchema() != 3 || len(h.Bucket) != 0 {
		t.Errorf("%v, want an empty native histogram", h)
	}
}

// Bounds that Prometheus refuses do not fail a scrape: their histogram has the number of times and their sum.
func TestBoundsThatDoNotAscend(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := prom.NewProvider(registry, prom.Options{})
	p.WatchQueue("q", func() workqueue.Stats {
		return workqueue.Stats{Latency: &workqueue.Histogram{Bounds: []float64{2, 1}, Counts: []uint64{1, 2, 3},
			Sum: 7}}
	})
	wantLines(t, text(t, registry), `workqueue_queue_duration_seconds_count{name="q"} 6`,
		`workqueue_queue_duration_seconds_sum{name="q"} 7`,
		`workqueue_queue_duration_seconds_bucket{name="q",le="+Inf"} 6`)
}
