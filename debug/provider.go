package debug

import (
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

var (
	_ workqueue.InspectorProvider = (*Handler)(nil)
	_ worker.StatsProvider        = (*Handler)(nil)
	_ worker.SnapshotProvider     = (*Handler)(nil)
	_ worker.InspectorProvider    = (*Handler)(nil)
)

// HistogramBounds returns those of Options.Metrics.
func (h *Handler) HistogramBounds() []float64 {
	return h.metrics.HistogramBounds()
}

// WatchQueue passes the queue on to Options.Metrics.
func (h *Handler) WatchQueue(name string, stats func() workqueue.Stats) {
	h.metrics.WatchQueue(name, stats)
}

// InspectQueue shows a queue under that name.
func (h *Handler) InspectQueue(name string, q workqueue.Inspector) {
	if p, ok := h.metrics.(workqueue.InspectorProvider); ok {
		p.InspectQueue(name, q)
	}
	h.register(name, q)
}

// WatchPool passes the pool on to Options.Metrics.
func (h *Handler) WatchPool(name string, stats func() worker.Stats) {
	if p, ok := h.metrics.(worker.StatsProvider); ok {
		p.WatchPool(name, stats)
	}
}

// WatchPoolKeys shows a pool, on the page of the queues that have its name.
func (h *Handler) WatchPoolKeys(name string, snapshot func(limit int) worker.Snapshot[any]) {
	if p, ok := h.metrics.(worker.SnapshotProvider); ok {
		p.WatchPoolKeys(name, snapshot)
	}
	h.addPool(name, worker.Inspector{Snapshot: snapshot})
}

// InspectPool shows a pool, on the page of its queue.
func (h *Handler) InspectPool(name string, p worker.Inspector) {
	switch below := h.metrics.(type) {
	case worker.InspectorProvider:
		below.InspectPool(name, p)
	case worker.SnapshotProvider:
		below.WatchPoolKeys(name, p.Snapshot)
	}
	h.addPool(name, p)
}

// Times is a MetricsProvider for programs that have no other: a queue that has it (and a name) reads the
// clock, so that the page shows for how long keys have been there. It makes no metrics.
//
//	workqueue.SetProvider(debug.Times{})
type Times struct{}

var _ workqueue.StatsProvider = Times{}

// HistogramBounds returns nil, which means Kubernetes' buckets.
func (Times) HistogramBounds() []float64 { return nil }

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
