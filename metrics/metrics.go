// Package metrics has the metrics of queues and pools, and adds up those with one name. It is for packages
// that export them, as prom and otel do; other programs need none of it.
package metrics

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// Metric is a metric that can be read from numbers S. Its name is that in Prometheus. One of Value, Histogram
// and Split is set.
type Metric[S any] struct {
	Name, Help string

	// Gauge marks a gauge, which is not exported once all sources have ended. What is neither Gauge nor
	// Histogram is a counter.
	Gauge bool

	// AppliesTo reports whether these numbers have the metric. Nil means that all have it.
	AppliesTo func(*S) bool

	Value     func(*S) float64
	Histogram func(*S) *workqueue.Histogram

	// Split reads a metric with several values, which differ in Label.
	Split func(*S) []Labelled
	Label string
}

// Labelled is a value of a metric that is split, and that of its label.
type Labelled struct {
	Label string
	Value float64
}

func gauge[S any](name, help string, read func(*S) float64) Metric[S] {
	return Metric[S]{Name: name, Help: help, Gauge: true, Value: read}
}

func counter[S any](name, help string, read func(*S) float64) Metric[S] {
	return Metric[S]{Name: name, Help: help, Value: read}
}

func histogram[S any](name, help string, read func(*S) *workqueue.Histogram) Metric[S] {
	return Metric[S]{Name: name, Help: help, Histogram: read}
}

func (m Metric[S]) onlyIf(has func(*S) bool) Metric[S] {
	m.AppliesTo = has
	return m
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

// IsExported reports whether numbers have the metric. Those without a live source have no gauges.
func (m *Metric[S]) IsExported(numbers *S, live bool) bool {
	return (live || !m.Gauge) && (m.AppliesTo == nil || m.AppliesTo(numbers))
}

// The places of Kubernetes' metrics in what QueueMetrics returns.
const (
	Depth = iota
	Adds
	QueueDuration
	WorkDuration
	UnfinishedWork
	LongestRunning
	Retries
)

// QueueMetrics returns the metrics of queues. Names and help of the first seven are Kubernetes', in
// k8s.io/component-base/metrics/prometheus/workqueue.
func QueueMetrics() []Metric[workqueue.Stats] { return slices.Clone(queueMetrics) }

var queueMetrics = []Metric[workqueue.Stats]{
	Depth: gauge("workqueue_depth", "Current depth of workqueue",
		func(st *workqueue.Stats) float64 { return float64(st.Queued + st.Again) }),
	Adds: counter("workqueue_adds_total", "Total number of adds handled by workqueue",
		func(st *workqueue.Stats) float64 { return float64(st.Adds) }),
	QueueDuration: histogram("workqueue_queue_duration_seconds",
		"How long in seconds an item stays in workqueue before being requested.",
		func(st *workqueue.Stats) *workqueue.Histogram { return st.Latency }),
	WorkDuration: histogram("workqueue_work_duration_seconds",
		"How long in seconds processing an item from workqueue takes.",
		func(st *workqueue.Stats) *workqueue.Histogram { return st.WorkDuration }),
	UnfinishedWork: gauge("workqueue_unfinished_work_seconds",
		"How many seconds of work has done that is in progress and hasn't been observed by work_duration. "+
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing "+
			"the rate at which this increases.",
		func(st *workqueue.Stats) float64 { return st.UnfinishedWork.Seconds() }),
	LongestRunning: gauge("workqueue_longest_running_processor_seconds",
		"How many seconds has the longest running processor for workqueue been running.",
		func(st *workqueue.Stats) float64 { return st.LongestRunning.Seconds() }),
	Retries: counter("workqueue_retries_total", "Total number of retries handled by workqueue",
		func(st *workqueue.Stats) float64 { return float64(st.Retries) }),
	gauge("workqueue_waiting_keys", "Number of keys that wait for their time to be queued.",
		func(st *workqueue.Stats) float64 { return float64(st.Waiting) }),
	gauge("workqueue_oldest_queued_key_age_seconds",
		"How many seconds ago the key was added that is at the head of the line.",
		func(st *workqueue.Stats) float64 { return st.OldestQueued.Seconds() }),
	counter("workqueue_dropped_keys_total",
		"Total number of keys that were dropped at shutdown: they waited for their time, or nobody took them.",
		func(st *workqueue.Stats) float64 { return float64(st.Dropped) }),
	counter("workqueue_unmatched_dones_total",
		"Total number of calls of Done for a key that no worker held. Each is a bug in the caller.",
		func(st *workqueue.Stats) float64 { return float64(st.UnmatchedDones) }),
	gauge("workqueue_keys_on_hold",
		"Number of keys that are on hold: workers have handled them, and the queue does not hand them out "+
			"again yet.",
		func(st *workqueue.Stats) float64 { return float64(st.OnHold) }).onlyIf(hasHolds),
	gauge("workqueue_blocked_keys",
		"Number of queued keys that a limit, or a pause of their group, holds back.",
		func(st *workqueue.Stats) float64 { return float64(st.Blocked) }).onlyIf(holdsKeysBack),
	gauge("workqueue_paused", "Whether the queue is paused: 1 or 0.",
		func(st *workqueue.Stats) float64 { return oneIf(st.Paused) }).onlyIf(holdsKeysBack),
	gauge("workqueue_shared_outage",
		"Whether the last attempt to reach the queue's server failed: 1 or 0.",
		func(st *workqueue.Stats) float64 { return oneIf(sharedOf(st).Outage) }).onlyIf(isShared),
	gauge("workqueue_shared_unsent_operations",
		"Number of adds and other operations that the process has not brought to the queue's server yet.",
		func(st *workqueue.Stats) float64 { return float64(sharedOf(st).Unsent) }).onlyIf(isShared),
	counter("workqueue_shared_errors_total",
		"Total number of attempts to reach the queue's server that failed.",
		func(st *workqueue.Stats) float64 { return float64(sharedOf(st).Errors) }).onlyIf(isShared),
	counter("workqueue_shared_lost_leases_total",
		"Total number of keys whose lease was lost while a worker held them.",
		func(st *workqueue.Stats) float64 { return float64(sharedOf(st).LostLeases) }).onlyIf(isShared),
	counter("workqueue_shared_lost_dones_total",
		"Total number of calls of Done that came after the lease was lost. Their keys are handled again.",
		func(st *workqueue.Stats) float64 { return float64(sharedOf(st).LostDones) }).onlyIf(isShared),
	histogram("workqueue_shared_call_duration_seconds",
		"How long in seconds the calls of the queue's server take, each with a batch of operations.",
		func(st *workqueue.Stats) *workqueue.Histogram { return sharedOf(st).CallDuration }).onlyIf(isShared),
	gauge("workqueue_shared_given_up_keys",
		"Number of keys of the whole queue that are not tried any more.",
		func(st *workqueue.Stats) float64 { return float64(sharedOf(st).GivenUp) }).onlyIf(isShared),
	gauge("workqueue_shared_repaired_entries",
		"Number of entries on the queue's server that did not fit together, and were repaired or skipped.",
		func(st *workqueue.Stats) float64 { return float64(sharedOf(st).Repaired) }).onlyIf(isShared),
	{
		Name: "workqueue_queued_keys", Help: "Number of keys that need processing, by priority.", Gauge: true,
		AppliesTo: hasPriorities, Split: queuedByPriority, Label: "priority",
	},
}

func hasPriorities(st *workqueue.Stats) bool { return st.ByPriority != nil }

func hasHolds(st *workqueue.Stats) bool { return st.OnHold > 0 }

func isShared(st *workqueue.Stats) bool { return sharedOf(st) != nil }

func sharedOf(st *workqueue.Stats) *leasing.Stats { return leasing.StatsOf(*st) }

// holdsKeysBack reports whether such a queue has pauses and limits.
func holdsKeysBack(st *workqueue.Stats) bool { return hasPriorities(st) || isShared(st) }

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// queuedByPriority returns the values of workqueue_queued_keys.
func queuedByPriority(st *workqueue.Stats) []Labelled {
	return append(PriorityValues(st.ByPriority), Labelled{"other", float64(st.ByPriority.Others)})
}

// PriorityValues returns the depths of the priorities that have a number of their own.
func PriorityValues(depths *workqueue.PriorityDepths) []Labelled {
	var values []Labelled
	for _, d := range depths.Depths {
		values = append(values, Labelled{strconv.Itoa(d.Priority), float64(d.Queued)})
	}
	return values
}

// PoolMetrics returns the metrics of pools.
func PoolMetrics() []Metric[worker.Stats] {
	all := slices.Clone(poolMetrics)
	for i := range all {
		if m := &all[i]; m.AppliesTo == nil {
			m.AppliesTo = func(st *worker.Stats) bool { return !CountsNoCalls(st) }
		}
	}
	return all
}

var poolMetrics = []Metric[worker.Stats]{
	{
		Name: "workqueue_pool_results_total", Help: "Total number of calls of the handler, by result.",
		Split: poolResults, Label: "result",
	},
	counter("workqueue_pool_errors_total", "Total number of calls of the handler that failed.",
		func(st *worker.Stats) float64 { return float64(st.Failed) }),
	counter("workqueue_pool_give_ups_total",
		"Total number of calls of the handler that failed and whose key was given up.",
		func(st *worker.Stats) float64 { return float64(st.GivenUp) }),
	counter("workqueue_pool_panics_total", "Total number of calls of the handler that panicked.",
		func(st *worker.Stats) float64 { return float64(st.Panicked) }),
	counter("workqueue_pool_timeouts_total",
		"Total number of calls of the handler that took longer than their timeout.",
		func(st *worker.Stats) float64 { return float64(st.TimedOut) }),
	histogram("workqueue_pool_handle_duration_seconds",
		"How long in seconds the calls of the handler took.",
		func(st *worker.Stats) *workqueue.Histogram { return st.Durations }),
	gauge("workqueue_pool_wanted_workers", "Number of workers that the pool should have.",
		func(st *worker.Stats) float64 { return float64(st.Wanted) }),
	gauge("workqueue_pool_busy_workers", "Number of workers that handle a key.",
		func(st *worker.Stats) float64 { return float64(st.Busy) }),
	gauge("workqueue_pool_living_workers", "Number of workers that exist.",
		func(st *worker.Stats) float64 { return float64(st.Living) }),
	gauge("workqueue_pool_stuck_workers", "Number of workers whose handler takes too long.",
		func(st *worker.Stats) float64 { return float64(st.Stuck) }),
	gauge("workqueue_pool_start_limited",
		"1 while keys are queued and the start limit keeps them from being handled, and otherwise 0.",
		func(st *worker.Stats) float64 { return oneIf(st.StartLimited) }),
	gauge("workqueue_pool_failing_keys",
		"Number of keys of the pool's queue that failed and will be tried again.",
		func(st *worker.Stats) float64 { return float64(st.Failing) }),
	gauge("workqueue_pool_looping_keys",
		"Number of keys that wanted to come at once more than five times in a row: they were interrupted, or "+
			"asked for it.",
		func(st *worker.Stats) float64 { return float64(st.Looping) }).onlyIf(always),
	gauge("workqueue_pool_keys_on_hold", "Number of keys that are on hold.",
		func(st *worker.Stats) float64 { return float64(st.OnHold) }).onlyIf(always),
	counter("workqueue_pool_holds_to_limit_total",
		"Total number of holds that came to their limit, because nobody released the key.",
		func(st *worker.Stats) float64 { return float64(st.HoldsToLimit) }).onlyIf(always),
	gauge("workqueue_pool_given_up_keys",
		"Number of keys that were given up and that the pool remembers.",
		func(st *worker.Stats) float64 { return float64(st.GivenUpKeys) }).onlyIf(always),
	histogram("workqueue_pool_change_duration_seconds",
		"How long in seconds it took from the first add of a key until a call of the handler "+
			"succeeded, retries included.",
		func(st *worker.Stats) *workqueue.Histogram { return st.Changes }).onlyIf(knowsChanges),
	gauge("workqueue_pool_oldest_change_age_seconds",
		"How many seconds ago the key was added for which no call of the handler has succeeded for longest.",
		func(st *worker.Stats) float64 { return st.OldestUnanswered.Seconds() }).onlyIf(knowsChanges),
	gauge("workqueue_pool_last_list_timestamp_seconds",
		"When the keys were last listed, in seconds since 1970.",
		func(st *worker.Stats) float64 { return float64(st.ListedAt.UnixMilli()) / 1000 }).onlyIf(hasListed),
	histogram("workqueue_pool_retry_delay_seconds",
		"For how many seconds keys that failed had to wait for their next try.",
		func(st *worker.Stats) *workqueue.Histogram { return st.RetryDelays }).onlyIf(
		func(st *worker.Stats) bool { return st.RetryDelays != nil }),
	histogram("workqueue_pool_hold_duration_seconds",
		"How long in seconds keys were on hold.",
		func(st *worker.Stats) *workqueue.Histogram { return st.HoldDurations }).onlyIf(
		func(st *worker.Stats) bool { return st.HoldDurations != nil }),
	gauge("workqueue_pool_busiest_key_share",
		"Which part of the calls of the last ten minutes was for the key with the most, if there were a hundred.",
		func(st *worker.Stats) float64 { return st.BusiestShare }).onlyIf(
		func(st *worker.Stats) bool { return st.BusiestShare > 0 }),
	counter("workqueue_pool_list_failures_total",
		"Total number of lists of all keys that failed.",
		func(st *worker.Stats) float64 { return float64(st.ListsFailed) }).onlyIf(lists),
}

// CountsNoCalls reports whether the numbers are of changes and held keys, and not of calls: they come from a
// program that counts its calls itself.
func CountsNoCalls(st *worker.Stats) bool { return st.Durations == nil && st.Changes != nil }

func always(*worker.Stats) bool { return true }

func hasListed(st *worker.Stats) bool { return !st.ListedAt.IsZero() }
func lists(st *worker.Stats) bool     { return st.ListsFailed > 0 || hasListed(st) }

func knowsChanges(st *worker.Stats) bool { return st.Changes != nil }

// poolResults returns the values of workqueue_pool_results_total.
func poolResults(st *worker.Stats) []Labelled {
	return []Labelled{
		{"success", float64(st.Handled - st.Failed - st.Requeued - st.Interrupted)},
		{"requeue", float64(st.Requeued)},
		{"interrupt", float64(st.Interrupted)},
		{"retry", float64(st.Failed - st.GivenUp)},
		{"give_up", float64(st.GivenUp)},
	}
}
