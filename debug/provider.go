package debug

import (
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

var (
	_ workqueue.InspectorProvider = (*Handler)(nil)
	_ worker.StatsProvider        = (*Handler)(nil)
	_ worker.SnapshotProvider     = (*Handler)(nil)
)

// HistogramBounds returns those of Options.Metrics, or nil.
func (h *Handler) HistogramBounds() []float64 {
	if h.metrics == nil {
		return nil
	}
	return h.metrics.HistogramBounds()
}

// WatchQueue passes the queue on to Options.Metrics.
func (h *Handler) WatchQueue(name string, stats func() workqueue.Stats) {
	if h.metrics != nil {
		h.metrics.WatchQueue(name, stats)
	}
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
	h.addPool(name, &pool{snapshot})
}
