package prom

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"
)

// family is one of the metrics, of which there is one for each name: gauges first, then counters, then
// histograms.
type family int

const (
	depth family = iota
	unfinished
	longestRunning
	waiting
	oldestQueued

	adds
	retries
	dropped
	unmatchedDones

	latency
	workDuration

	numFamilies
	// byPriority is a gauge that only queues with priorities have, of which there are several for a name.
	byPriority = numFamilies

	firstCounter, firstHistogram = adds, latency
)

// families have, for those that Kubernetes has, its names and help, in
// k8s.io/component-base/metrics/prometheus/workqueue.
var families = [numFamilies + 1]struct {
	name, help string
	// longest tells that the values of several queues do not add up, but the longest counts.
	longest bool
}{
	depth: {"depth", "Current depth of workqueue", false},
	unfinished: {"unfinished_work_seconds",
		"How many seconds of work has done that is in progress and hasn't been observed by work_duration. " +
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing " +
			"the rate at which this increases.", false},
	longestRunning: {"longest_running_processor_seconds",
		"How many seconds has the longest running processor for workqueue been running.", true},
	waiting: {"waiting_keys", "Number of keys that wait for their time to be queued.", false},
	oldestQueued: {"oldest_queued_key_age_seconds",
		"How many seconds ago the key was added that is at the head of the line.", true},
	adds:    {"adds_total", "Total number of adds handled by workqueue", false},
	retries: {"retries_total", "Total number of retries handled by workqueue", false},
	dropped: {"dropped_keys_total",
		"Total number of keys that were still waiting for their time at shutdown.", false},
	unmatchedDones: {"unmatched_dones_total",
		"Total number of calls of Done for a key that no worker held. Each is a bug in the caller.", false},
	latency: {"queue_duration_seconds",
		"How long in seconds an item stays in workqueue before being requested.", false},
	workDuration: {"work_duration_seconds",
		"How long in seconds processing an item from workqueue takes.", false},
	byPriority: {"queued_keys", "Number of keys that wait for a worker, by priority.", false},
}

func (f family) kind() dto.MetricType {
	switch {
	case f < firstCounter || f == byPriority:
		return dto.MetricType_GAUGE
	case f < firstHistogram:
		return dto.MetricType_COUNTER
	default:
		return dto.MetricType_HISTOGRAM
	}
}

// fullName is what Prometheus calls the family.
func (f family) fullName(namespace string) string {
	return prometheus.BuildFQName(namespace, "workqueue", families[f].name)
}

// familySet is a set of families.
type familySet uint

const (
	gauges   familySet = 1<<firstCounter - 1
	counters familySet = 1<<numFamilies - 1 - gauges // and histograms, which also only grow
)

func (s familySet) has(f family) bool { return s&(1<<f) != 0 }
