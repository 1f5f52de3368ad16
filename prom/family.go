package prom

import "github.com/prometheus/client_golang/prometheus"

// family is one of the metrics, of which there is one for each name.
type family int

const (
	depth family = iota
	adds
	latency
	workDuration
	unfinished
	longestRunning
	retries
	waiting
	oldestQueued
	dropped
	unmatchedDones
	numFamilies
)

// families have, for those that Kubernetes has, its names, types and help, in
// k8s.io/component-base/metrics/prometheus/workqueue.
var families = [numFamilies]struct {
	name, help string
	// kind is not used for histograms.
	kind prometheus.ValueType
	// longest tells that the values of several queues do not add up, but the longest counts.
	longest bool
}{
	depth: {"depth", "Current depth of workqueue", prometheus.GaugeValue, false},
	adds:  {"adds_total", "Total number of adds handled by workqueue", prometheus.CounterValue, false},
	latency: {"queue_duration_seconds",
		"How long in seconds an item stays in workqueue before being requested.", 0, false},
	workDuration: {"work_duration_seconds",
		"How long in seconds processing an item from workqueue takes.", 0, false},
	unfinished: {"unfinished_work_seconds",
		"How many seconds of work has done that is in progress and hasn't been observed by work_duration. " +
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing " +
			"the rate at which this increases.", prometheus.GaugeValue, false},
	longestRunning: {"longest_running_processor_seconds",
		"How many seconds has the longest running processor for workqueue been running.",
		prometheus.GaugeValue, true},
	retries: {"retries_total", "Total number of retries handled by workqueue", prometheus.CounterValue, false},
	waiting: {"waiting_keys", "Number of keys that wait for their time to be queued.",
		prometheus.GaugeValue, false},
	oldestQueued: {"oldest_queued_key_age_seconds",
		"How many seconds ago the key was added that is at the head of the line.", prometheus.GaugeValue, true},
	dropped: {"dropped_keys_total", "Total number of keys that were still waiting for their time at shutdown.",
		prometheus.CounterValue, false},
	unmatchedDones: {"unmatched_dones_total",
		"Total number of calls of Done for a key that no worker held. Each is a bug in the caller.",
		prometheus.CounterValue, false},
}

// familySet is a set of families.
type familySet uint

const (
	gauges   familySet = 1<<depth | 1<<unfinished | 1<<longestRunning | 1<<waiting | 1<<oldestQueued
	counters familySet = 1<<numFamilies - 1 - gauges // and histograms, which also only grow
)

func (s familySet) has(f family) bool { return s&(1<<f) != 0 }
