package prom

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// The families of pools. Those up to busyWorkers have a name in controller-runtime, too.
const (
	poolResults = iota
	poolErrors
	poolDropped
	poolPanics
	poolTimeouts
	poolDuration
	wantedWorkers
	busyWorkers
	livingWorkers
	stuckWorkers
	failingKeys

	resultLabel = "result"
)

// poolFamilies are the metrics of pools.
var poolFamilies = []family[worker.Stats]{
	poolResults: {
		name: "workqueue_pool_results_total", help: "Total number of calls of the handler, by result.",
		split: poolResultsOf, label: resultLabel, splitKind: dto.MetricType_COUNTER,
	},
	poolErrors: {
		name: "workqueue_pool_errors_total", help: "Total number of calls of the handler that failed.",
		counter: func(st *worker.Stats) float64 { return float64(st.Failed) },
	},
	poolDropped: {
		name: "workqueue_pool_dropped_keys_total",
		help: "Total number of calls of the handler that failed and whose key was given up.",
		counter: func(st *worker.Stats) float64 {
			return float64(st.Dropped)
		},
	},
	poolPanics: {
		name: "workqueue_pool_panics_total", help: "Total number of calls of the handler that panicked.",
		counter: func(st *worker.Stats) float64 { return float64(st.Panicked) },
	},
	poolTimeouts: {
		name:    "workqueue_pool_timeouts_total",
		help:    "Total number of calls of the handler that took longer than their timeout.",
		counter: func(st *worker.Stats) float64 { return float64(st.TimedOut) },
	},
	poolDuration: {
		name: "workqueue_pool_handle_duration_seconds", help: "How long in seconds the calls of the handler took.",
		histogram: func(st *worker.Stats) *workqueue.Histogram { return st.Durations },
	},
	wantedWorkers: {
		name: "workqueue_pool_wanted_workers", help: "Number of workers that the pool should have.",
		gauge: func(st *worker.Stats) float64 { return float64(st.Wanted) },
	},
	busyWorkers: {
		name: "workqueue_pool_busy_workers", help: "Number of workers that handle a key.",
		gauge: func(st *worker.Stats) float64 { return float64(st.Busy) },
	},
	livingWorkers: {
		name: "workqueue_pool_living_workers", help: "Number of workers that exist.",
		gauge: func(st *worker.Stats) float64 { return float64(st.Living) },
	},
	stuckWorkers: {
		name: "workqueue_pool_stuck_workers", help: "Number of workers whose handler takes too long.",
		gauge: func(st *worker.Stats) float64 { return float64(st.Stuck) },
	},
	failingKeys: {
		name: "workqueue_pool_failing_keys", help: "Number of keys that failed and will be tried again.",
		gauge: func(st *worker.Stats) float64 { return float64(st.Failing) },
	},
}

// controllerRuntimePoolFamilies returns poolFamilies under the names of controller-runtime, for those that it has, in
// pkg/internal/controller/metrics.
func controllerRuntimePoolFamilies() []family[worker.Stats] {
	f := append([]family[worker.Stats]{}, poolFamilies...)
	for i, own := range []struct{ name, help string }{
		poolResults:   {"reconcile_total", "Total number of reconciliations per controller"},
		poolErrors:    {"reconcile_errors_total", "Total number of reconciliation errors per controller"},
		poolDropped:   {"terminal_reconcile_errors_total", "Total number of terminal reconciliation errors per controller"},
		poolPanics:    {"reconcile_panics_total", "Total number of reconciliation panics per controller"},
		poolTimeouts:  {"reconcile_timeouts_total", "Total number of reconciliation timeouts per controller"},
		poolDuration:  {"reconcile_time_seconds", "Length of time per reconciliation per controller"},
		wantedWorkers: {"max_concurrent_reconciles", "Maximum number of concurrent reconciles per controller"},
		busyWorkers:   {"active_workers", "Number of currently used workers per controller"},
	} {
		f[i].name, f[i].help = "controller_runtime_"+own.name, own.help
		f[i].nameLabels = []string{controllerLabel}
	}
	f[poolResults].split = controllerRuntimeResults
	return f
}

func poolResultsOf(st *worker.Stats) []labelled {
	return []labelled{
		{"success", float64(st.Handled - st.Failed - st.Requeued)},
		{"requeue", float64(st.Requeued)},
		{"retry", float64(st.Failed - st.Dropped)},
		{"drop", float64(st.Dropped)},
	}
}

// controllerRuntimeResults does not know which calls of Requeue had a delay, so "requeue_after" is missing.
func controllerRuntimeResults(st *worker.Stats) []labelled {
	return []labelled{
		{"success", float64(st.Handled - st.Failed - st.Requeued)},
		{"requeue", float64(st.Requeued)},
		{"error", float64(st.Failed)},
	}
}

// WatchPool adds a pool of package worker to the metrics of that name. Every scrape reads it until it has ended. A pool
// calls it when it runs.
func (p *Provider) WatchPool(name string, stats func() worker.Stats) { p.pools.Watch(name, stats) }

var _ worker.StatsProvider = (*Provider)(nil)

// collectPools reads all pools and sends their metrics.
func (p *Provider) collectPools(ch chan<- prometheus.Metric) {
	for pools := range p.pools.All() {
		b := p.buckets
		if h := pools.Sum.Durations; h != nil {
			b = &buckets{bounds: h.Bounds, classic: h.Bounds}
			for i := range h.Bounds {
				b.ends = append(b.ends, i)
			}
		}
		for i := range p.poolFamilies {
			f := &p.poolFamilies[i]
			if desc := p.desc(f.descs); desc != nil && (pools.Live || !f.isGauge()) {
				f.send(ch, desc, pools.Name, &pools.Sum, b)
			}
		}
	}
}
