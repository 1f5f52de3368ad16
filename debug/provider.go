package debug

import (
	"reflect"
	"slices"

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

func (h *Handler) addPool(name string, p *pool) {
	now := measure{at: h.clock.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	g := h.pools[name]
	if g == nil {
		label := newLabel(name, maxName).short()
		// The prefix leaves the id to a queue with this name, which may come later.
		g = &poolGroup{entry: &entry{id: "pool " + label, name: label}}
		g.entry.history.begin(h.tick, now)
		h.pools[name] = g
	}
	g.pools = append(g.pools, p)
	h.startLocked()
}

func (h *Handler) removePool(name string, p *pool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.pools[name]
	if g == nil {
		return
	}
	g.pools = slices.DeleteFunc(g.pools, func(q *pool) bool { return q == p })
	if len(g.pools) == 0 {
		delete(h.pools, name)
		h.stopIfEmptyLocked()
	}
}

// hashable returns v, or nil if it cannot be the key of a map.
func hashable(v any) any {
	if v == nil || !reflect.ValueOf(v).Comparable() {
		return nil
	}
	return v
}
