package debug

import (
	"cmp"
	"net/http"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

var (
	_ http.Handler             = (*Handler)(nil)
	_ workqueue.QueueInspector = (*Handler)(nil)
	_ worker.InspectorProvider = (*Handler)(nil)
)

// Metrics returns Options.Metrics, or a provider that makes no metrics: h passes on to it what it is asked to
// show.
func (h *Handler) Metrics() workqueue.StatsProvider { return h.metrics }

// HistogramBounds returns those of Options.Metrics.
func (h *Handler) HistogramBounds() []float64 { return h.metrics.HistogramBounds() }

// WatchQueue passes the queue on to Options.Metrics.
func (h *Handler) WatchQueue(name string, stats func() workqueue.Stats) {
	h.metrics.WatchQueue(name, stats)
}

// InspectQueue shows a queue under that name.
func (h *Handler) InspectQueue(name string, q any, untyped workqueue.Extended[any]) {
	if p, ok := h.metrics.(workqueue.QueueInspector); ok {
		p.InspectQueue(name, q, untyped)
	}
	h.register(name, operate.InspectorOf(q, untyped))
}

// PoolHistogramBounds returns those of Options.Metrics.
func (h *Handler) PoolHistogramBounds() []float64 {
	if p, ok := h.metrics.(interface{ PoolHistogramBounds() []float64 }); ok {
		return p.PoolHistogramBounds()
	}
	return nil
}

// InspectPool shows a pool, on the page of its queue. A queue that is not shown yet is shown until its pools
// have ended, under its own name or else the pool's.
func (h *Handler) InspectPool(name string, p worker.Inspector) {
	if below, ok := h.metrics.(worker.InspectorProvider); ok {
		below.InspectPool(name, p)
	}
	if !h.addPool(&p) {
		name = short(cmp.Or(p.Queue.Stats().Name, name), maxName)
		h.show(&entry{name: name, queue: p.Queue, forPools: true})
		h.addPool(&p)
	}
}

// Times is a MetricsProvider for programs that have no other: a queue that has it (and a name) reads the
// clock, so that the page shows for how long keys have been there. It makes no metrics.
//
//	workqueue.SetProvider(debug.Times{})
type Times struct{}

var _ workqueue.StatsProvider = Times{}

// timesBounds are for times on a page: they reach the ages of keys in an outage.
var timesBounds = []float64{
	1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600,
}

// HistogramBounds returns bounds from a microsecond to an hour.
func (Times) HistogramBounds() []float64 { return timesBounds }

// WatchQueue does nothing.
func (Times) WatchQueue(string, func() workqueue.Stats) {}

// NewDepthMetric and the methods below return nil: without metrics.
func (Times) NewDepthMetric(string) workqueue.GaugeMetric                         { return nil }
func (Times) NewAddsMetric(string) workqueue.CounterMetric                        { return nil }
func (Times) NewLatencyMetric(string) workqueue.HistogramMetric                   { return nil }
func (Times) NewWorkDurationMetric(string) workqueue.HistogramMetric              { return nil }
func (Times) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric { return nil }
func (Times) NewRetriesMetric(string) workqueue.CounterMetric                     { return nil }
func (Times) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return nil
}
