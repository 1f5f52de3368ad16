package debug

import "github.com/keyedqueue/workqueue"

// Times is a MetricsProvider for programs that have no other: a queue that has it (and a name) reads the
// clock, so that the page shows for how long keys have been there. It makes no metrics.
//
//	workqueue.SetProvider(debug.Times{})
type Times struct{}

var _ workqueue.StatsProvider = Times{}

// HistogramBounds returns nil, which means Kubernetes' buckets.
func (Times) HistogramBounds() []float64 { return nil }

// WatchQueue does nothing.
func (Times) WatchQueue(string, func() workqueue.Stats) {}

// NewDepthMetric returns nil.
func (Times) NewDepthMetric(string) workqueue.GaugeMetric { return nil }

// NewAddsMetric returns nil.
func (Times) NewAddsMetric(string) workqueue.CounterMetric { return nil }

// NewLatencyMetric returns nil.
func (Times) NewLatencyMetric(string) workqueue.HistogramMetric { return nil }

// NewWorkDurationMetric returns nil.
func (Times) NewWorkDurationMetric(string) workqueue.HistogramMetric { return nil }

// NewUnfinishedWorkSecondsMetric returns nil.
func (Times) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric { return nil }

// NewLongestRunningProcessorSecondsMetric returns nil.
func (Times) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return nil
}

// NewRetriesMetric returns nil.
func (Times) NewRetriesMetric(string) workqueue.CounterMetric { return nil }
