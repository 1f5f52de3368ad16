package prom

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
)

// family is one metric: its name, and how to read it from numbers S. One of gauge, counter and histogram is set.
type family[S any] struct {
	name, help string
	gauge      func(*S) float64
	counter    func(*S) float64
	histogram  func(*S) *workqueue.Histogram
	// desc is set in the provider's copy of the family.
	desc *prometheus.Desc
}

// read sets the value of m to that in numbers.
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

// The families of queues that callers can push to.
const (
	depth = iota
	adds
	queueDuration
	workDuration
	unfinishedWork
	longestRunning
	retries
	numPushed
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
	{
		name: "workqueue_waiting_keys", help: "Number of keys that wait for their time to be queued.",
		gauge: func(st *workqueue.Stats) float64 { return float64(st.Waiting) },
	},
	{
		name:  "workqueue_oldest_queued_key_age_seconds",
		help:  "How many seconds ago the key was added that is at the head of the line.",
		gauge: func(st *workqueue.Stats) float64 { return st.OldestQueued.Seconds() },
	},
	{
		name:    "workqueue_dropped_keys_total",
		help:    "Total number of keys that were still waiting for their time at shutdown.",
		counter: func(st *workqueue.Stats) float64 { return float64(st.Dropped) },
	},
	{
		name:    "workqueue_unmatched_dones_total",
		help:    "Total number of calls of Done for a key that no worker held. Each is a bug in the caller.",
		counter: func(st *workqueue.Stats) float64 { return float64(st.UnmatchedDones) },
	},
}

// queuedKeys is the metric of queues with priorities. It has one value for each priority.
const (
	queuedKeysName = "workqueue_queued_keys"
	queuedKeysHelp = "Number of keys that wait for a worker, by priority."
	priorityLabel  = "priority"
	// otherPriorities is the label's value for all priorities that have no value of their own.
	otherPriorities = "other"
)

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
