package otel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/metrics"
	"github.com/keyedqueue/workqueue/otel"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// newProvider returns a provider and the reader that collects its metrics.
func newProvider(t *testing.T, opts otel.Options) (*otel.Provider, *sdk.ManualReader) {
	p, err := otel.NewProvider(opts)
	if err != nil {
		t.Fatal(err)
	}
	reader := sdk.NewManualReader(sdk.WithProducer(p))
	meters := sdk.NewMeterProvider(sdk.WithReader(reader))
	if _, err := p.Register(meters.Meter("test")); err != nil {
		t.Fatal(err)
	}
	return p, reader
}

// collect returns all values, by the name of the metric and its attributes. Histograms have a count, a sum
// and the buckets that are not empty, by their bound.
func collect(t *testing.T, reader *sdk.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Description == "" {
				t.Errorf("%s has no description", m.Name)
			}
			switch data := m.Data.(type) {
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					values[m.Name+attributes(p.Attributes)] = p.Value
				}
			case metricdata.Sum[float64]:
				if !data.IsMonotonic || data.Temporality != metricdata.CumulativeTemporality {
					t.Errorf("%s is no counter: %+v", m.Name, data)
				}
				for _, p := range data.DataPoints {
					values[m.Name+attributes(p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if m.Unit != "s" || !p.StartTime.Before(p.Time) || len(p.BucketCounts) != len(p.Bounds)+1 {
						t.Errorf("%s in %q: %+v", m.Name, m.Unit, p)
					}
					name := m.Name + attributes(p.Attributes)
					values[name+" count"], values[name+" sum"] = float64(p.Count), p.Sum
					for i, n := range p.BucketCounts {
						if n > 0 {
							values[fmt.Sprint(name, " le ", append(slices.Clone(p.Bounds), math.Inf(1))[i])] = float64(n)
						}
					}
				}
			default:
				t.Errorf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return values
}

// attributes returns the values of the attributes, in the order of their names.
func attributes(set attribute.Set) string {
	var values []string
	for _, a := range set.ToSlice() {
		values = append(values, a.Value.AsString())
	}
	return "{" + strings.Join(values, " ") + "}"
}

func wantValues(t *testing.T, when string, got, want map[string]float64) {
	t.Helper()
	if !maps.Equal(got, want) {
		for _, name := range slices.Sorted(maps.Keys(got)) {
			t.Logf("%s = %v", name, got[name])
		}
		t.Errorf("%s: got the values above, want %v", when, want)
	}
}

func TestQueue(t *testing.T) {
	p, reader := newProvider(t, otel.Options{Buckets: []float64{1, 10}})
	wantValues(t, "without a queue", collect(t, reader), map[string]float64{})
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	q := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
		Name: "q", MetricsProvider: p, Clock: clock,
	})
	q.Add("a")
	q.Add("b")
	q.AddAfter("w", time.Hour)
	clock.Step(time.Second)
	q.Get()
	clock.Step(3 * time.Second)
	q.Done("x")
	want := map[string]float64{
		"workqueue.depth{q}": 1, "workqueue.adds{q}": 2, "workqueue.retries{q}": 1, "workqueue.waiting_keys{q}": 1,
		"workqueue.unfinished_work{q}": 3, "workqueue.longest_running_processor{q}": 3,
		"workqueue.oldest_queued_key_age{q}": 4, "workqueue.dropped_keys{q}": 0, "workqueue.unmatched_dones{q}": 1,
		"workqueue.queue_duration{q} count": 1, "workqueue.queue_duration{q} sum": 1,
		"workqueue.queue_duration{q} le 1": 1,
		"workqueue.work_duration{q} count": 0, "workqueue.work_duration{q} sum": 0,
	}
	for range 2 {
		wantValues(t, "while it runs", collect(t, reader), want)
	}
	q.Done("a")
	key, _ := q.Get()
	clock.Step(time.Minute)
	q.Done(key)
	q.ShutDown()
	wantValues(t, "ended", collect(t, reader), map[string]float64{
		"workqueue.adds{q}": 2, "workqueue.retries{q}": 1, "workqueue.dropped_keys{q}": 1,
		"workqueue.unmatched_dones{q}":      1,
		"workqueue.queue_duration{q} count": 2, "workqueue.queue_duration{q} sum": 5,
		"workqueue.queue_duration{q} le 1": 1, "workqueue.queue_duration{q} le 10": 1,
		"workqueue.work_duration{q} count": 2, "workqueue.work_duration{q} sum": 63,
		"workqueue.work_duration{q} le 10": 1, "workqueue.work_duration{q} le +Inf": 1,
	})
}

func TestPriorities(t *testing.T) {
	p, reader := newProvider(t, otel.Options{})
	q := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: p})
	defer q.ShutDown()
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, "a", "b")
	got := collect(t, reader)
	if got["workqueue.queued_keys{q 5}"] != 2 || got["workqueue.depth{q}"] != 2 {
		t.Errorf("%v", got)
	}
}

func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, reader := newProvider(t, otel.Options{})
		ofQueue, _ := newProvider(t, otel.Options{}) // reader has the pool alone
		q := workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: ofQueue})
		q.Add("good")
		q.Add("bad")
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			ended <- worker.Run(ctx, q, func(_ context.Context, key string) error {
				time.Sleep(time.Second)
				if key == "bad" {
					return errors.New("not yet")
				}
				return nil
			}, worker.Options[string]{Name: "p", Workers: 2, MetricsProvider: p})
		}()
		time.Sleep(time.Minute)
		running := map[string]float64{
			"workqueue.pool.wanted_workers{p}": 2, "workqueue.pool.living_workers{p}": 2,
			"workqueue.pool.busy_workers{p}":  0,
			"workqueue.pool.stuck_workers{p}": 0, "workqueue.pool.start_limited{p}": 0,
			"workqueue.pool.failing_keys{p}":  1,
			"workqueue.pool.given_up_keys{p}": 0, "workqueue.pool.looping_keys{p}": 0,
			"workqueue.pool.oldest_change_age{p}": 60, "workqueue.pool.keys_on_hold{p}": 0,
		}
		counted := map[string]float64{
			"workqueue.pool.results{p success}": 1, "workqueue.pool.results{p retry}": 1,
			"workqueue.pool.results{p requeue}": 0, "workqueue.pool.results{p interrupt}": 0,
			"workqueue.pool.results{p give_up}": 0,
			"workqueue.pool.errors{p}":          1, "workqueue.pool.give_ups{p}": 0, "workqueue.pool.panics{p}": 0,
			"workqueue.pool.holds_to_limit{p}":        0,
			"workqueue.pool.timeouts{p}":              0,
			"workqueue.pool.handle_duration{p} count": 2, "workqueue.pool.handle_duration{p} sum": 2,
			"workqueue.pool.handle_duration{p} le 1":  2,
			"workqueue.pool.change_duration{p} count": 1, "workqueue.pool.change_duration{p} sum": 1,
			"workqueue.pool.change_duration{p} le 1": 1,
			"workqueue.pool.retry_delay{p} count":    1, "workqueue.pool.retry_delay{p} sum": 3600,
			"workqueue.pool.retry_delay{p} le +Inf": 1,
		}
		maps.Copy(running, counted)
		wantValues(t, "while it runs", collect(t, reader), running)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		wantValues(t, "ended", collect(t, reader), counted)
	})
}

// Prometheus makes the names of package prom of ours.
func TestNamesInPrometheus(t *testing.T) {
	p, reader := newProvider(t, otel.Options{})
	q := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: p})
	defer q.ShutDown()
	q.Add("a")
	p.WatchQueue("shared", func() workqueue.Stats {
		return workqueue.Stats{OnHold: 1, Shared: &leasing.Stats{CallDuration: &workqueue.Histogram{Counts: []uint64{0}}}}
	})
	p.InspectPool("p", worker.Inspector{Stats: func() worker.Stats {
		times := &workqueue.Histogram{Counts: []uint64{0}}
		return worker.Stats{Queue: "shared", Durations: times, Changes: times,
			RetryDelays: times, HoldDurations: times, BusiestShare: 0.5, ListedAt: time.Now()}
	}})
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, m := range metrics.QueueMetrics() {
		want[m.Name] = true
	}
	for _, m := range metrics.PoolMetrics() {
		want[m.Name] = true
	}
	namer := otlptranslator.MetricNamer{WithMetricSuffixes: true}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			kind := otlptranslator.MetricType(otlptranslator.MetricTypeGauge)
			switch m.Data.(type) {
			case metricdata.Sum[float64]:
				kind = otlptranslator.MetricTypeMonotonicCounter
			case metricdata.Histogram[float64]:
				kind = otlptranslator.MetricTypeHistogram
			}
			name, err := namer.Build(otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: kind})
			if err != nil || !want[name] {
				t.Errorf("%s becomes %q, %v", m.Name, name, err)
			}
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestUnregister(t *testing.T) {
	p, err := otel.NewProvider(otel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reader := sdk.NewManualReader()
	registration, err := p.Register(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "q",
		MetricsProvider: p}).ShutDown()
	if got := collect(t, reader); len(got) != 9 {
		t.Errorf("%d values without a producer, want 9: %v", len(got), got)
	}
	if err := registration.Unregister(); err != nil {
		t.Error(err)
	}
	if got := collect(t, reader); len(got) != 0 {
		t.Errorf("after Unregister: %v", got)
	}
}

func TestBadBounds(t *testing.T) {
	for _, bounds := range [][]float64{{1, 1}, {2, 1}, {math.NaN()}, {math.Inf(1)}} {
		if p, err := otel.NewProvider(otel.Options{Buckets: bounds}); p != nil || err == nil ||
			!strings.HasPrefix(err.Error(), "otel: ") {
			t.Errorf("NewProvider() with buckets %v = %v, %v", bounds, p, err)
		}
	}
	p, err := otel.NewProvider(otel.Options{Buckets: []float64{}})
	if err != nil || p.HistogramBounds() == nil {
		t.Errorf("NewProvider() without buckets = %v, %v", p.HistogramBounds(), err)
	}
}
