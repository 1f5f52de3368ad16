package prom

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/metrics"
	"github.com/keyedqueue/workqueue/worker"
)

// family is a metric as this provider has it.
type family[S any] struct {
	metrics.Metric[S]
	// nameLabels are the labels whose value is the name of the queue or pool. Nil means those of the provider.
	nameLabels []string
	// earlierHelp is the help text in earlier versions of Kubernetes or controller-runtime, or empty. It is
	// for [Join].
	earlierHelp string
	// descs are set by the provider. They have the same labels and different help. All but the first are for
	// [Join].
	descs []*prometheus.Desc
}

func familiesOf[S any](table []metrics.Metric[S]) []family[S] {
	families := make([]family[S], len(table))
	for i, m := range table {
		families[i].Metric = m
	}
	return families
}

// controllerRuntimeFamilies returns the metrics of queues as controller-runtime has them, in
// pkg/internal/metrics.
func controllerRuntimeFamilies() []family[workqueue.Stats] {
	isSplit := func(m metrics.Metric[workqueue.Stats]) bool { return m.Split != nil }
	f := familiesOf(slices.DeleteFunc(metrics.QueueMetrics(), isSplit)) // The depth has the priorities.
	f[metrics.Depth].Metric = metrics.Metric[workqueue.Stats]{
		Name: f[metrics.Depth].Name, Help: "Current depth of workqueue by workqueue and priority",
		Gauge: true, Split: depthByPriority, Label: priorityLabel,
	}
	f[metrics.QueueDuration].Help = "How long in seconds an item stays in workqueue before being requested"
	f[metrics.UnfinishedWork].Help = "How many seconds of work has been done that is in progress and hasn't " +
		"been observed by work_duration. Large values indicate stuck threads. One can deduce the number of " +
		"stuck threads by observing the rate at which this increases."
	f[metrics.Retries].Help = "Total number of items added to the workqueue with a non-zero delay " +
		"(rate-limited requeues, explicit RequeueAfter or AddAfter calls)"
	// up to controller-runtime 0.24
	f[metrics.Retries].earlierHelp = "Total number of retries handled by workqueue"
	return f
}

// depthByPriority returns the values of controller-runtime's workqueue_depth.
func depthByPriority(st *workqueue.Stats) []metrics.Labelled {
	if st.ByPriority == nil {
		return []metrics.Labelled{{Label: "", Value: float64(st.Queued + st.Again)}}
	}
	values := metrics.PriorityValues(st.ByPriority)
	if len(values) == metrics.MaxPriorities {
		values = append(values, metrics.Labelled{Label: "exceeded_cardinality_limit",
			Value: float64(st.ByPriority.Others)})
	}
	without := st.Queued + st.Again - st.ByPriority.Others // Other queues of the name may have no priorities.
	for _, d := range st.ByPriority.Depths {
		without -= d.Queued
	}
	if without > 0 {
		values = append(values, metrics.Labelled{Label: "", Value: float64(without)})
	}
	return values
}

// controllerRuntimePoolFamilies returns the metrics of pools, with the names of controller-runtime for those
// that it has, in pkg/internal/controller/metrics.
func controllerRuntimePoolFamilies() []family[worker.Stats] {
	f := familiesOf(metrics.PoolMetrics())
	theirs := map[string]struct{ name, help string }{
		"results_total": {"reconcile_total", "Total number of reconciliations per controller"},
		"errors_total":  {"reconcile_errors_total", "Total number of reconciliation errors per controller"},
		"give_ups_total": {"terminal_reconcile_errors_total",
			"Total number of terminal reconciliation errors per controller"},
		"panics_total": {"reconcile_panics_total", "Total number of reconciliation panics per controller"},
		"timeouts_total": {"reconcile_timeouts_total",
			"Total number of reconciliation timeouts per controller"},
		"handle_duration_seconds": {"reconcile_time_seconds", "Length of time per reconciliation per controller"},
		"wanted_workers": {"max_concurrent_reconciles",
			"Maximum number of concurrent reconciles per controller"},
		"busy_workers": {"active_workers", "Number of currently used workers per controller"},
	}
	for i := range f {
		if f[i].Split != nil {
			f[i].Split = controllerRuntimeResults
		}
		if own, found := theirs[strings.TrimPrefix(f[i].Name, "workqueue_pool_")]; found {
			f[i].Name, f[i].Help = "controller_runtime_"+own.name, own.help
			f[i].nameLabels = []string{controllerLabel}
		}
	}
	return f
}

// controllerRuntimeResults returns the values of controller_runtime_reconcile_total.
func controllerRuntimeResults(st *worker.Stats) []metrics.Labelled {
	return []metrics.Labelled{
		{Label: "success", Value: float64(st.Handled - st.Failed - st.Requeued - st.Interrupted)},
		{Label: "requeue", Value: float64(st.Requeued - st.RequeuedAfter + st.Interrupted)},
		{Label: "requeue_after", Value: float64(st.RequeuedAfter)},
		{Label: "error", Value: float64(st.Failed)},
	}
}

// labels returns the labels of a metric, sorted: those with the name, and the Label of the family, if it has
// one.
func (f *family[S]) labels(name string, split ...string) []*dto.LabelPair {
	return prometheus.MakeLabelPairs(f.descs[0],
		append(slices.Repeat([]string{name}, len(f.nameLabels)), split...))
}

func (f *family[S]) setDescs(opts Options, nameLabels []string) {
	if f.nameLabels == nil {
		f.nameLabels = nameLabels
	}
	labels := slices.Clone(f.nameLabels)
	if f.Label != "" {
		labels = append(labels, f.Label)
	}
	for _, help := range slices.Compact([]string{f.Help, cmp.Or(f.earlierHelp, f.Help)}) {
		for _, stability := range stabilities {
			f.descs = append(f.descs, prometheus.NewDesc(
				prometheus.BuildFQName(opts.Namespace, "", f.Name), stability+help, labels, maps.Clone(opts.ConstLabels)))
		}
	}
}

// sendTo reads the family's values from numbers and sends them, under the descriptor desc, which is one of
// f.descs.
func (f *family[S]) sendTo(ch chan<- prometheus.Metric, desc *prometheus.Desc, name string, numbers *S,
	b *buckets) {
	switch {
	case f.Value != nil:
		ch <- &metric{desc: desc, labels: f.labels(name), gauge: f.Gauge, value: f.Value(numbers)}
	case f.Histogram != nil:
		ch <- &metric{desc: desc, labels: f.labels(name), histogram: b.histogram(f.Histogram(numbers))}
	default:
		for _, v := range f.Split(numbers) {
			ch <- &metric{desc: desc, labels: f.labels(name, v.Label), gauge: f.Gauge, value: v.Value}
		}
	}
}
