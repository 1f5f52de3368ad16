// Package otel exports the metrics of queues and worker pools to OpenTelemetry:
//
//	p, err := otel.NewProvider(otel.Options{})
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(p))         // histograms
//	meters := metric.NewMeterProvider(metric.WithReader(reader))
//	_, err = p.Register(meters.Meter("github.com/keyedqueue/workqueue/otel"))    // all others
//	workqueue.SetProvider(p)
//
// where metric is go.opentelemetry.io/otel/sdk/metric. Afterwards every queue and every pool with a name
// has the metrics of package prom, with the attribute name. Their names follow OpenTelemetry's conventions.
// Prometheus, if they are sent there, translates these names into those of package prom: workqueue.adds
// becomes workqueue_adds_total, and workqueue.queue_duration, in seconds, workqueue_queue_duration_seconds.
// Dashboards and alerts work with both.
//
// Gauges and counters are asynchronous instruments of the metric API: a collection reads the queues. The API
// has no asynchronous histogram, so a [Provider] produces the histograms itself, for a reader of the SDK.
// Without metric.WithProducer they are missing. They are cumulative even if the reader prefers another
// temporality, which counters follow.
//
// Queues with the same name add up, as in package prom, and as there what they counted stays until the
// program ends.
package otel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/metrics"
	"github.com/keyedqueue/workqueue/worker"
)

// Options are the options of a [Provider].
type Options struct {
	// Buckets are the upper bounds of the buckets of the histograms, in seconds, ascending. Nil means powers of
	// ten from 10 ns to 1,000 s, and for the handlers of pools 21 bounds from 10 µs to half an hour. An empty
	// slice that is not nil means no buckets.
	Buckets []float64
}

// Provider is a [workqueue.StatsProvider] and a [worker.InspectorProvider] that exports their metrics. It is
// made by [NewProvider]. All methods are safe for concurrent use.
type Provider struct {
	bounds []float64
	start  time.Time
	queues *metrics.Set[workqueue.Stats]
	pools  *metrics.Set[worker.Stats]
}

var (
	_ workqueue.StatsProvider  = (*Provider)(nil)
	_ worker.InspectorProvider = (*Provider)(nil)
	_ sdk.Producer             = (*Provider)(nil)
)

// NewProvider returns a provider. It returns an error if the options are wrong.
func NewProvider(opts Options) (*Provider, error) {
	if err := metrics.CheckBounds(opts.Buckets); err != nil {
		return nil, fmt.Errorf("otel: Buckets %w", err)
	}
	return &Provider{
		bounds: slices.Clone(opts.Buckets), // which keeps nil and empty
		start:  time.Now(), queues: metrics.NewQueueSet(), pools: metrics.NewPoolSet(),
	}, nil
}

// HistogramBounds returns Options.Buckets, in seconds. The caller must not change them.
func (p *Provider) HistogramBounds() []float64 { return p.bounds }

// PoolHistogramBounds returns Options.Buckets, in seconds. The caller must not change them.
func (p *Provider) PoolHistogramBounds() []float64 { return p.bounds }

// WatchQueue adds a queue to the metrics of that name. Every collection reads it until it was shut down and
// its last key is done. WatchQueue takes constant time and does not block.
func (p *Provider) WatchQueue(name string, stats func() workqueue.Stats) { p.queues.Watch(name, stats) }

// InspectPool adds a pool to the metrics of that name. Every collection reads it until it has ended.
func (p *Provider) InspectPool(name string, i worker.Inspector) { p.pools.Watch(name, i.Stats) }

// Register makes the instruments of all gauges and counters, and lets meter read the queues and pools at
// every collection, until the Registration is unregistered. Call it once for each MeterProvider. It returns
// an error if meter refuses an instrument.
func (p *Provider) Register(meter metric.Meter) (metric.Registration, error) {
	var all []metric.Observable
	ofQueues, ofPools := metrics.QueueMetrics(), metrics.PoolMetrics()
	queues, err := newInstruments(meter, ofQueues, &all)
	if err != nil {
		return nil, err
	}
	pools, err := newInstruments(meter, ofPools, &all)
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for t := range p.queues.All() {
			observe(o, &t, ofQueues, queues)
		}
		for t := range p.pools.All() {
			observe(o, &t, ofPools, pools)
		}
		return nil
	}, all...)
}

// newInstruments returns an instrument for each metric of table, nil for histograms, and appends them to all.
func newInstruments[S any](meter metric.Meter, table []metrics.Metric[S],
	all *[]metric.Observable) ([]metric.Float64Observable, error) {
	instruments := make([]metric.Float64Observable, len(table))
	for i, m := range table {
		if m.Histogram != nil {
			continue
		}
		name, unit := nameOf(m.Name)
		var err error
		if m.Gauge {
			instruments[i], err = meter.Float64ObservableGauge(name, metric.WithDescription(m.Help),
				metric.WithUnit(unit))
		} else {
			instruments[i], err = meter.Float64ObservableCounter(name, metric.WithDescription(m.Help),
				metric.WithUnit(unit))
		}
		if err != nil {
			return nil, err
		}
		*all = append(*all, instruments[i])
	}
	return instruments, nil
}

// observe reports the metrics of table, read from the numbers of one name, to the instruments.
func observe[S any](o metric.Observer, t *metrics.Total[S], table []metrics.Metric[S],
	instruments []metric.Float64Observable) {
	name := attribute.String("name", t.Name)
	attributes := metric.WithAttributeSet(attribute.NewSet(name))
	for i := range table {
		m := &table[i]
		switch {
		case m.Histogram != nil || !m.IsExported(&t.Sum, t.Live):
		case m.Value != nil:
			o.ObserveFloat64(instruments[i], m.Value(&t.Sum), attributes)
		default:
			for _, v := range m.Split(&t.Sum) {
				o.ObserveFloat64(instruments[i], v.Value, metric.WithAttributes(name, attribute.String(m.Label, v.Label)))
			}
		}
	}
}

// Produce reads all queues and pools and returns their histograms. It is for the SDK's readers: see
// [sdk.WithProducer].
func (p *Provider) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	all := histograms(p.start, p.queues, metrics.QueueMetrics())
	all = append(all, histograms(p.start, p.pools, metrics.PoolMetrics())...)
	if len(all) == 0 {
		return nil, nil
	}
	return []metricdata.ScopeMetrics{{
		Scope: instrumentation.Scope{Name: "github.com/keyedqueue/workqueue/otel"}, Metrics: all,
	}}, nil
}

// histograms reads all sources of set and returns the histograms of table.
func histograms[S any](start time.Time, set *metrics.Set[S],
	table []metrics.Metric[S]) (all []metricdata.Metrics) {
	sums := slices.Collect(set.All())
	now := time.Now()
	for _, m := range table {
		if m.Histogram == nil {
			continue
		}
		var points []metricdata.HistogramDataPoint[float64]
		for i := range sums {
			t := &sums[i]
			if !m.IsExported(&t.Sum, t.Live) {
				continue
			}
			if h := m.Histogram(&t.Sum); h != nil {
				points = append(points, metricdata.HistogramDataPoint[float64]{
					Attributes: attribute.NewSet(attribute.String("name", t.Name)), StartTime: start, Time: now,
					Count: h.Count(), Bounds: h.Bounds, BucketCounts: h.Counts, Sum: h.Sum,
				})
			}
		}
		if len(points) > 0 {
			name, unit := nameOf(m.Name)
			all = append(all, metricdata.Metrics{
				Name: name, Description: m.Help, Unit: unit,
				Data: metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality, DataPoints: points},
			})
		}
	}
	return all
}

// nameOf returns the name by OpenTelemetry's conventions of a metric that has that name in Prometheus, and
// its unit.
func nameOf(prometheus string) (name, unit string) {
	name = strings.TrimSuffix(prometheus, "_total")
	if short, ok := strings.CutSuffix(name, "_seconds"); ok {
		name, unit = short, "s"
	}
	for _, prefix := range []string{"workqueue_pool_", "workqueue_shared_", "workqueue_"} {
		if own, ok := strings.CutPrefix(name, prefix); ok {
			return strings.ReplaceAll(prefix, "_", ".") + own, unit
		}
	}
	return name, unit
}

// NewDepthMetric and the methods below return nil: nothing is pushed to the metrics of a provider.
func (*Provider) NewDepthMetric(string) workqueue.GaugeMetric                         { return nil }
func (*Provider) NewAddsMetric(string) workqueue.CounterMetric                        { return nil }
func (*Provider) NewLatencyMetric(string) workqueue.HistogramMetric                   { return nil }
func (*Provider) NewWorkDurationMetric(string) workqueue.HistogramMetric              { return nil }
func (*Provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric { return nil }
func (*Provider) NewRetriesMetric(string) workqueue.CounterMetric                     { return nil }
func (*Provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return nil
}
