package prom

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/totals"
)

// family is one metric: its name, and how to read it from numbers S. One of gauge, counter, histogram and split is
// set.
type family[S any] struct {
	name, help string

	gauge     func(*S) float64
	counter   func(*S) float64
	histogram func(*S) *workqueue.Histogram

	// split reads the values of a family that has one more label than others. Its kind is splitKind.
	split     func(*S) []labelled
	label     string
	splitKind dto.MetricType

	// nameLabels are the labels whose value is the name of the queue or pool. Nil means those of the provider.
	nameLabels []string
	// descs are set by the provider. They have the same labels and different help. All but the first are for [Join].
	descs []*prometheus.Desc
}

// labelled is a value of a split family, and that of its label.
type labelled struct {
	label string
	value float64
}

// The families of queues. Callers can push to the first numPushed of them.
const (
	depth = iota
	adds
	queueDuration
	workDuration
	unfinishedWork
	longestRunning
	retries
	waitingKeys
	oldestQueued
	droppedKeys
	unmatchedDones
	queuedKeys

	numPushed = retries + 1
)

// queueFamilies are the metrics of queues. Names and help of the first seven are those of Kubernetes, in
// k8s.io/component-base/metrics/prometheus/workqueue.
var queueFamilies = []family[workqueue.Stats]{
	depth: {
		name: "workqueue_depth", help: "Current depth of workqueue",
		gauge: func(st *workqueue.Stats) float64 { return float64(st.Queued + st.Again) },
	},
	adds: {
		name: "workqueue_adds_total", help: "Total number of adds handled by workqueue",
		counter: func(st *workqueue.Stats) float64 { return float64(st.Adds) },
	},
	queueDuration: {
		name:      "workqueue_queue_duration_seconds",
		help:      "How long in seconds an item stays in workqueue before being requested.",
		histogram: func(st *workqueue.Stats) *workqueue.Histogram { return st.Latency },
	},
	workDuration: {
		name:      "workqueue_work_duration_seconds",
		help:      "How long in seconds processing an item from workqueue takes.",
		histogram: func(st *workqueue.Stats) *workqueue.Histogram { return st.WorkDuration },
	},
	unfinishedWork: {
		name: "workqueue_unfinished_work_seconds",
		help: "How many seconds of work has done that is in progress and hasn't been observed by work_duration. " +
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing " +
			"the rate at which this increases.",
		gauge: func(st *workqueue.Stats) float64 { return st.UnfinishedWork.Seconds() },
	},
	longestRunning: {
		name:  "workqueue_longest_running_processor_seconds",
		help:  "How many seconds has the longest running processor for workqueue been running.",
		gauge: func(st *workqueue.Stats) float64 { return st.LongestRunning.Seconds() },
	},
	retries: {
		name: "workqueue_retries_total", help: "Total number of retries handled by workqueue",
		counter: func(st *workqueue.Stats) float64 { return float64(st.Retries) },
	},
	waitingKeys: {
		name: "workqueue_waiting_keys", help: "Number of keys that wait for their time to be queued.",
		gauge: func(st *workqueue.Stats) float64 { return float64(st.Waiting) },
	},
	oldestQueued: {
		name:  "workqueue_oldest_queued_key_age_seconds",
		help:  "How many seconds ago the key was added that is at the head of the line.",
		gauge: func(st *workqueue.Stats) float64 { return st.OldestQueued.Seconds() },
	},
	droppedKeys: {
		name:    "workqueue_dropped_keys_total",
		help:    "Total number of keys that were still waiting for their time at shutdown.",
		counter: func(st *workqueue.Stats) float64 { return float64(st.Dropped) },
	},
	unmatchedDones: {
		name:    "workqueue_unmatched_dones_total",
		help:    "Total number of calls of Done for a key that no worker held. Each is a bug in the caller.",
		counter: func(st *workqueue.Stats) float64 { return float64(st.UnmatchedDones) },
	},
	queuedKeys: {
		name: "workqueue_queued_keys", help: "Number of keys that wait for a worker, by priority.",
		split: queuedByPriority, label: priorityLabel, splitKind: dto.MetricType_GAUGE,
	},
}

// controllerRuntimeFamilies returns queueFamilies as controller-runtime has them, in pkg/internal/metrics.
func controllerRuntimeFamilies() []family[workqueue.Stats] {
	f := append([]family[workqueue.Stats]{}, queueFamilies[:queuedKeys]...) // whose values are those of depth here
	f[depth] = family[workqueue.Stats]{
		name: f[depth].name, help: "Current depth of workqueue by workqueue and priority",
		split: depthByPriority, label: priorityLabel, splitKind: dto.MetricType_GAUGE,
	}
	f[queueDuration].help = "How long in seconds an item stays in workqueue before being requested"
	f[unfinishedWork].help = "How many seconds of work has been done that is in progress and hasn't been observed by " +
		"work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing " +
		"the rate at which this increases."
	f[retries].help = "Total number of items added to the workqueue with a non-zero delay (rate-limited requeues, " +
		"explicit RequeueAfter or AddAfter calls)"
	return f
}

// queuedByPriority returns the values of workqueue_queued_keys.
func queuedByPriority(st *workqueue.Stats) []labelled {
	if st.ByPriority == nil {
		return nil
	}
	return append(byPriority(st.ByPriority), labelled{"other", float64(st.ByPriority.Others)})
}

// depthByPriority returns the values of controller-runtime's workqueue_depth.
func depthByPriority(st *workqueue.Stats) []labelled {
	if st.ByPriority == nil {
		return []labelled{{"", float64(st.Queued + st.Again)}}
	}
	values := byPriority(st.ByPriority)
	if len(values) == totals.MaxPriorities {
		values = append(values, labelled{"exceeded_cardinality_limit", float64(st.ByPriority.Others)})
	}
	return values
}

func byPriority(depths *workqueue.PriorityDepths) []labelled {
	var values []labelled
	for _, d := range depths.Depths {
		values = append(values, labelled{strconv.Itoa(d.Priority), float64(d.Queued)})
	}
	return values
}

// send reads the family's values from numbers and sends them under the descriptor desc, which is one of f.descs.
func (f *family[S]) send(ch chan<- prometheus.Metric, desc *prometheus.Desc, name string, numbers *S, b *buckets) {
	if f.split == nil {
		m := &metric{desc: desc, labels: f.labels(name)}
		f.read(m, numbers, b)
		ch <- m
		return
	}
	for _, v := range f.split(numbers) {
		ch <- &metric{desc: desc, labels: f.labels(name, v.label), kind: f.splitKind, value: v.value}
	}
}

// read sets the value of m to that in numbers. The family must not be split.
func (f *family[S]) read(m *metric, numbers *S, b *buckets) {
	switch {
	case f.gauge != nil:
		m.kind, m.value = dto.MetricType_GAUGE, f.gauge(numbers)
	case f.counter != nil:
		m.kind, m.value = dto.MetricType_COUNTER, f.counter(numbers)
	default:
		m.kind, m.histogram = dto.MetricType_HISTOGRAM, b.histogram(f.histogram(numbers))
	}
}

// labels returns the labels of a metric, sorted: those with the name, and that of a split family.
func (f *family[S]) labels(name string, split ...string) []*dto.LabelPair {
	var values []string
	for range f.nameLabels {
		values = append(values, name)
	}
	return prometheus.MakeLabelPairs(f.descs[0], append(values, split...))
}

// isGauge reports whether the family has no values without a live source.
func (f *family[S]) isGauge() bool {
	return f.gauge != nil || f.split != nil && f.splitKind == dto.MetricType_GAUGE
}

// metric is one value of a family at one scrape. It does not change.
type metric struct {
	desc      *prometheus.Desc
	labels    []*dto.LabelPair // sorted by name
	kind      dto.MetricType   // gauge, counter or histogram
	value     float64
	histogram *dto.Histogram
}

// Desc returns the descriptor of the metric's family.
func (m *metric) Desc() *prometheus.Desc { return m.desc }

// Write fills in out.
func (m *metric) Write(out *dto.Metric) error {
	out.Label = m.labels
	switch m.kind {
	case dto.MetricType_GAUGE:
		out.Gauge = &dto.Gauge{Value: &m.value}
	case dto.MetricType_COUNTER:
		out.Counter = &dto.Counter{Value: &m.value}
	default:
		out.Histogram = m.histogram
	}
	return nil
}
