// Package metrics has the metrics of queues and pools, and adds up those with one name, for the packages that export
// them.
package metrics

import (
	"fmt"
	"math"
	"strconv"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Metric is a metric that can be read from numbers S. Its name is that in Prometheus. One of Gauge, Counter, Histogram
// and Split is set.
type Metric[S any] struct {
	Name, Help string

	// Has reports whether these numbers have the metric. Nil means that all have it.
	Has func(*S) bool

	Gauge     func(*S) float64
	Counter   func(*S) float64
	Histogram func(*S) *workqueue.Histogram

	// Split reads a metric with several values, which differ in Label. The values are gauges or counters.
	Split      func(*S) []Labelled
	Label      string
	SplitGauge bool
}

// Labelled is a value of a metric that is split, and that of its label.
type Labelled struct {
	Label string
	Value float64
}

// CheckBounds returns an error unless these can be the bounds of buckets, in seconds.
func CheckBounds(bounds []float64) error {
	for i, bound := range bounds {
		if math.IsNaN(bound) || math.IsInf(bound, 0) || i > 0 && bound <= bounds[i-1] {
			return fmt.Errorf("must ascend and be finite, but the one at %d is %v", i, bound)
		}
	}
	return nil
}

// IsGauge reports whether the metric has no value without a live source.
func (m *Metric[S]) IsGauge() bool { return m.Gauge != nil || m.Split != nil && m.SplitGauge }

// In reports whether numbers have the metric. Those without a live source have no gauges.
func (m *Metric[S]) In(numbers *S, live bool) bool {
	return (live || !m.IsGauge()) && (m.Has == nil || m.Has(numbers))
}

// The indexes of Queue.
const (
	Depth = iota
	Adds
	QueueDuration
	WorkDuration
	UnfinishedWork
	LongestRunning
	Retries
	WaitingKeys
	OldestQueued
	DroppedKeys
	UnmatchedDones
	BlockedKeys
	Paused
	Outage
	UnsentOperations
	ServerErrors
	LostLeases
	LostDones
	CallDuration
	FailingShared
	GivenUpKeys
	SetAsideKeys
	RepairedEntries
	QueuedKeys
	numQueue
)

// Queue are the metrics of queues. Names and help of the first seven are those of Kubernetes, in
// k8s.io/component-base/metrics/prometheus/workqueue.
var Queue = []Metric[workqueue.Stats]{
	Depth: {
		Name: "workqueue_depth", Help: "Current depth of workqueue",
		Gauge: func(st *workqueue.Stats) float64 { return float64(st.Queued + st.Again) },
	},
	Adds: {
		Name: "workqueue_adds_total", Help: "Total number of adds handled by workqueue",
		Counter: func(st *workqueue.Stats) float64 { return float64(st.Adds) },
	},
	QueueDuration: {
		Name:      "workqueue_queue_duration_seconds",
		Help:      "How long in seconds an item stays in workqueue before being requested.",
		Histogram: func(st *workqueue.Stats) *workqueue.Histogram { return st.Latency },
	},
	WorkDuration: {
		Name:      "workqueue_work_duration_seconds",
		Help:      "How long in seconds processing an item from workqueue takes.",
		Histogram: func(st *workqueue.Stats) *workqueue.Histogram { return st.WorkDuration },
	},
	UnfinishedWork: {
		Name: "workqueue_unfinished_work_seconds",
		Help: "How many seconds of work has done that is in progress and hasn't been observed by work_duration. " +
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing " +
			"the rate at which this increases.",
		Gauge: func(st *workqueue.Stats) float64 { return st.UnfinishedWork.Seconds() },
	},
	LongestRunning: {
		Name:  "workqueue_longest_running_processor_seconds",
		Help:  "How many seconds has the longest running processor for workqueue been running.",
		Gauge: func(st *workqueue.Stats) float64 { return st.LongestRunning.Seconds() },
	},
	Retries: {
		Name: "workqueue_retries_total", Help: "Total number of retries handled by workqueue",
		Counter: func(st *workqueue.Stats) float64 { return float64(st.Retries) },
	},
	WaitingKeys: {
		Name: "workqueue_waiting_keys", Help: "Number of keys that wait for their time to be queued.",
		Gauge: func(st *workqueue.Stats) float64 { return float64(st.Waiting) },
	},
	OldestQueued: {
		Name:  "workqueue_oldest_queued_key_age_seconds",
		Help:  "How many seconds ago the key was added that is at the head of the line.",
		Gauge: func(st *workqueue.Stats) float64 { return st.OldestQueued.Seconds() },
	},
	DroppedKeys: {
		Name:    "workqueue_dropped_keys_total",
		Help:    "Total number of keys that were still waiting for their time at shutdown.",
		Counter: func(st *workqueue.Stats) float64 { return float64(st.Dropped) },
	},
	UnmatchedDones: {
		Name:    "workqueue_unmatched_dones_total",
		Help:    "Total number of calls of Done for a key that no worker held. Each is a bug in the caller.",
		Counter: func(st *workqueue.Stats) float64 { return float64(st.UnmatchedDones) },
	},
	BlockedKeys: {
		Name: "workqueue_blocked_keys", Help: "Number of queued keys whose group is at its limit.",
		Has:   hasPriorities,
		Gauge: func(st *workqueue.Stats) float64 { return float64(st.Blocked) },
	},
	Paused: {
		Name: "workqueue_paused", Help: "Whether the queue is paused: 1 or 0.",
		Has:   func(st *workqueue.Stats) bool { return st.ByPriority != nil || st.Shared != nil },
		Gauge: func(st *workqueue.Stats) float64 { return oneIf(st.Paused) },
	},
	Outage: {
		Name: "workqueue_shared_outage", Help: "Whether the last attempt to reach the queue's server failed: 1 or 0.",
		Has:   isShared,
		Gauge: func(st *workqueue.Stats) float64 { return oneIf(st.Shared.Outage) },
	},
	UnsentOperations: {
		Name:  "workqueue_shared_unsent_operations",
		Help:  "Number of adds and other operations that the process has not brought to the queue's server yet.",
		Has:   isShared,
		Gauge: func(st *workqueue.Stats) float64 { return float64(st.Shared.Unsent) },
	},
	ServerErrors: {
		Name:    "workqueue_shared_errors_total",
		Help:    "Total number of attempts to reach the queue's server that failed.",
		Has:     isShared,
		Counter: func(st *workqueue.Stats) float64 { return float64(st.Shared.Errors) },
	},
	LostLeases: {
		Name:    "workqueue_shared_lost_leases_total",
		Help:    "Total number of keys whose lease was lost while a worker held them.",
		Has:     isShared,
		Counter: func(st *workqueue.Stats) float64 { return float64(st.Shared.LostLeases) },
	},
	LostDones: {
		Name:    "workqueue_shared_lost_dones_total",
		Help:    "Total number of calls of Done that came after the lease was lost. Their keys are handled again.",
		Has:     isShared,
		Counter: func(st *workqueue.Stats) float64 { return float64(st.Shared.LostDones) },
	},
	CallDuration: {
		Name:      "workqueue_shared_call_duration_seconds",
		Help:      "How long in seconds the calls of the queue's server take, each with a batch of operations.",
		Has:       isShared,
		Histogram: func(st *workqueue.Stats) *workqueue.Histogram { return st.Shared.CallDuration },
	},
	FailingShared: {
		Name: "workqueue_shared_failing_keys", Help: "Number of keys of the whole queue that have failed, of all processes.",
		Has:   isShared,
		Gauge: func(st *workqueue.Stats) float64 { return float64(st.Shared.Failing) },
	},
	GivenUpKeys: {
		Name: "workqueue_shared_given_up_keys", Help: "Number of keys of the whole queue that are not tried any more.",
		Has:   isShared,
		Gauge: func(st *workqueue.Stats) float64 { return float64(st.Shared.GivenUp) },
	},
	SetAsideKeys: {
		Name: "workqueue_shared_set_aside_keys", Help: "Number of keys of the whole queue that a process could not decode.",
		Has:   isShared,
		Gauge: func(st *workqueue.Stats) float64 { return float64(st.Shared.SetAside) },
	},
	RepairedEntries: {
		Name:  "workqueue_shared_repaired_entries",
		Help:  "Number of entries on the queue's server that did not fit together, and were repaired or skipped.",
		Has:   isShared,
		Gauge: func(st *workqueue.Stats) float64 { return float64(st.Shared.Repaired) },
	},
	QueuedKeys: {
		Name: "workqueue_queued_keys", Help: "Number of keys that need processing, by priority.",
		Has: hasPriorities, Split: queuedByPriority, Label: "priority", SplitGauge: true,
	},
}

func hasPriorities(st *workqueue.Stats) bool { return st.ByPriority != nil }

func isShared(st *workqueue.Stats) bool { return st.Shared != nil }

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// queuedByPriority returns the values of workqueue_queued_keys.
func queuedByPriority(st *workqueue.Stats) []Labelled {
	return append(ByPriority(st.ByPriority), Labelled{"other", float64(st.ByPriority.Others)})
}

// ByPriority returns the depths of the priorities that have a number of their own.
func ByPriority(depths *workqueue.PriorityDepths) []Labelled {
	var values []Labelled
	for _, d := range depths.Depths {
		values = append(values, Labelled{strconv.Itoa(d.Priority), float64(d.Queued)})
	}
	return values
}

// The indexes of Pool.
const (
	PoolResults = iota
	PoolErrors
	PoolDropped
	PoolPanics
	PoolTimeouts
	PoolDuration
	WantedWorkers
	BusyWorkers
	LivingWorkers
	StuckWorkers
	FailingKeys
)

// Pool are the metrics of pools.
var Pool = []Metric[worker.Stats]{
	PoolResults: {
		Name: "workqueue_pool_results_total", Help: "Total number of calls of the handler, by result.",
		Split: poolResults, Label: "result",
	},
	PoolErrors: {
		Name: "workqueue_pool_errors_total", Help: "Total number of calls of the handler that failed.",
		Counter: func(st *worker.Stats) float64 { return float64(st.Failed) },
	},
	PoolDropped: {
		Name:    "workqueue_pool_dropped_keys_total",
		Help:    "Total number of calls of the handler that failed and whose key was given up.",
		Counter: func(st *worker.Stats) float64 { return float64(st.Dropped) },
	},
	PoolPanics: {
		Name: "workqueue_pool_panics_total", Help: "Total number of calls of the handler that panicked.",
		Counter: func(st *worker.Stats) float64 { return float64(st.Panicked) },
	},
	PoolTimeouts: {
		Name:    "workqueue_pool_timeouts_total",
		Help:    "Total number of calls of the handler that took longer than their timeout.",
		Counter: func(st *worker.Stats) float64 { return float64(st.TimedOut) },
	},
	PoolDuration: {
		Name: "workqueue_pool_handle_duration_seconds", Help: "How long in seconds the calls of the handler took.",
		Histogram: func(st *worker.Stats) *workqueue.Histogram { return st.Durations },
	},
	WantedWorkers: {
		Name: "workqueue_pool_wanted_workers", Help: "Number of workers that the pool should have.",
		Gauge: func(st *worker.Stats) float64 { return float64(st.Wanted) },
	},
	BusyWorkers: {
		Name: "workqueue_pool_busy_workers", Help: "Number of workers that handle a key.",
		Gauge: func(st *worker.Stats) float64 { return float64(st.Busy) },
	},
	LivingWorkers: {
		Name: "workqueue_pool_living_workers", Help: "Number of workers that exist.",
		Gauge: func(st *worker.Stats) float64 { return float64(st.Living) },
	},
	StuckWorkers: {
		Name: "workqueue_pool_stuck_workers", Help: "Number of workers whose handler takes too long.",
		Gauge: func(st *worker.Stats) float64 { return float64(st.Stuck) },
	},
	FailingKeys: {
		Name: "workqueue_pool_failing_keys", Help: "Number of keys that failed and will be tried again.",
		Gauge: func(st *worker.Stats) float64 { return float64(st.Failing) },
	},
}

// poolResults returns the values of workqueue_pool_results_total.
func poolResults(st *worker.Stats) []Labelled {
	return []Labelled{
		{"success", float64(st.Handled - st.Failed - st.Requeued - st.Interrupted)},
		{"requeue", float64(st.Requeued + st.Interrupted)},
		{"retry", float64(st.Failed - st.Dropped)},
		{"drop", float64(st.Dropped)},
	}
}
