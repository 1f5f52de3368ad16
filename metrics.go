package workqueue

import (
	"github.com/keyedqueue/workqueue/internal/observe"
	"k8s.io/utils/clock"
)

// GaugeMetric goes up and down.
type GaugeMetric interface {
	Inc()
	Dec()
}

// SettableGaugeMetric is set.
type SettableGaugeMetric interface {
	Set(float64)
}

// CounterMetric goes up.
type CounterMetric interface {
	Inc()
}

// SummaryMetric takes observations.
type SummaryMetric interface {
	Observe(float64)
}

// HistogramMetric takes observations, in seconds.
type HistogramMetric interface {
	Observe(float64)
}

// MetricsProvider makes each metric of a queue with a name, or nil to leave it out. Metrics are called under
// the queue's lock: they should be quick and must not call the queue.
type MetricsProvider interface {
	// NewDepthMetric makes Queued plus Again of [Stats].
	NewDepthMetric(name string) GaugeMetric
	// NewAddsMetric makes Adds of [Stats].
	NewAddsMetric(name string) CounterMetric
	// NewLatencyMetric makes the seconds from a key's first add to its hand-out.
	NewLatencyMetric(name string) HistogramMetric
	// NewWorkDurationMetric makes the seconds from Get to Done.
	NewWorkDurationMetric(name string) HistogramMetric
	// NewUnfinishedWorkSecondsMetric makes the sum of the seconds for which keys have been held.
	NewUnfinishedWorkSecondsMetric(name string) SettableGaugeMetric
	// NewLongestRunningProcessorSecondsMetric makes the largest of them.
	NewLongestRunningProcessorSecondsMetric(name string) SettableGaugeMetric
	// NewRetriesMetric makes Retries of [Stats].
	NewRetriesMetric(name string) CounterMetric
}

// StatsProvider is a [MetricsProvider] that reads a queue's Stats when it needs them: that is several times
// as fast as pushing every change. Its queues make no metrics and have no goroutine.
type StatsProvider interface {
	MetricsProvider
	// HistogramBounds returns the upper bounds of the buckets, in seconds, ascending and not NaN: otherwise
	// making a queue panics. Nil means powers of ten from 10 ns to 1,000 s.
	HistogramBounds() []float64
	// WatchQueue is called once for a queue with a name. stats takes constant time and does not block. A key
	// that moves between layers is never missing, but may be counted twice. When the queue is shut down and
	// empty, only UnmatchedDones still changes. Until shutdown the queue lives as long as stats.
	WatchQueue(name string, stats func() Stats)
}

// SetProvider sets the provider of all later queues with a name and no provider. Only the first call has an
// effect; nil is ignored.
func SetProvider(metricsProvider MetricsProvider) {
	if p := any(metricsProvider); p != nil {
		observe.Global.CompareAndSwap(nil, &p)
	}
}

// StatsProviderFor returns the [StatsProvider] of a queue with that configured, or nil: for queues of other
// packages.
func StatsProviderFor(configured MetricsProvider) StatsProvider {
	p, _ := providerFor("a queue", configured).(StatsProvider)
	return p
}

// providerFor returns the provider of a queue's metrics, or nil if the queue has no metrics.
func providerFor(name string, configured MetricsProvider) MetricsProvider {
	if name == "" {
		return nil
	}
	if global := observe.Global.Load(); configured == nil && global != nil {
		return (*global).(MetricsProvider)
	}
	return configured
}

// newObserver returns what keeps a queue's times and pushes its metrics, or nil without a provider.
func newObserver(name string, provider MetricsProvider, c clock.WithTicker) *observe.Observer {
	if provider == nil {
		return nil
	}
	if p, ok := provider.(StatsProvider); ok {
		buckets, err := observe.BucketsOf(p.HistogramBounds())
		if err != nil {
			panic("workqueue: StatsProvider: " + err.Error())
		}
		return observe.New(c, buckets, nil)
	}
	return observe.New(c, observe.DefaultBuckets, &observe.Push{
		Depth:          observe.OrNoop(provider.NewDepthMetric(name)),
		Adds:           observe.OrNoop(provider.NewAddsMetric(name)),
		Latency:        observe.OrNoop(provider.NewLatencyMetric(name)),
		WorkDuration:   observe.OrNoop(provider.NewWorkDurationMetric(name)),
		UnfinishedWork: observe.OrNoop(provider.NewUnfinishedWorkSecondsMetric(name)),
		LongestRunning: observe.OrNoop(provider.NewLongestRunningProcessorSecondsMetric(name)),
	})
}

// watch lets a StatsProvider read a queue's stats. With another provider it does nothing.
func watch(name string, provider MetricsProvider, stats func() Stats) {
	if p, ok := provider.(StatsProvider); ok {
		p.WatchQueue(name, stats)
	}
}

func newRetriesMetric(name string, provider MetricsProvider) CounterMetric {
	if _, pulls := provider.(StatsProvider); pulls || provider == nil {
		return observe.OrNoop[CounterMetric](nil)
	}
	return observe.OrNoop(provider.NewRetriesMetric(name))
}

func (q *Typed[T]) refreshMetrics() {
	q.mu.Lock()
	defer q.unlock()
	if !q.shuttingDown.Load() {
		q.observer.Refresh()
	}
}
