package workqueue

import (
	"github.com/keyedqueue/workqueue/internal/observe"
	"k8s.io/utils/clock"
)

// GaugeMetric is a number that goes up and down in steps of one.
type GaugeMetric interface {
	Inc()
	Dec()
}

// SettableGaugeMetric is a number that is set.
type SettableGaugeMetric interface {
	Set(float64)
}

// CounterMetric is a number that only goes up.
type CounterMetric interface {
	Inc()
}

// SummaryMetric takes single observations.
type SummaryMetric interface {
	Observe(float64)
}

// HistogramMetric takes single observations, in seconds.
type HistogramMetric interface {
	Observe(float64)
}

// MetricsProvider makes the metrics of a queue that has a name, each once. Metrics are called under the
// queue's lock: they should be quick and must not call the queue. A method may return nil to leave a metric
// out.
type MetricsProvider interface {
	// NewDepthMetric makes the number of keys that are queued, or were added again while held.
	NewDepthMetric(name string) GaugeMetric
	// NewAddsMetric makes the number of adds, except of keys that needed processing already.
	NewAddsMetric(name string) CounterMetric
	// NewLatencyMetric makes the seconds from a key's first add to its hand-out.
	NewLatencyMetric(name string) HistogramMetric
	// NewWorkDurationMetric makes the seconds from Get to Done.
	NewWorkDurationMetric(name string) HistogramMetric
	// NewUnfinishedWorkSecondsMetric makes the sum of the seconds for which workers have held keys. It is set
	// every 500 ms of the queue's clock and, after shutdown, with every Done.
	NewUnfinishedWorkSecondsMetric(name string) SettableGaugeMetric
	// NewLongestRunningProcessorSecondsMetric makes that time of the longest held key alone.
	NewLongestRunningProcessorSecondsMetric(name string) SettableGaugeMetric
	// NewRetriesMetric makes the number of calls of AddAfter and AddRateLimited before shutdown.
	NewRetriesMetric(name string) CounterMetric
}

// StatsProvider is a [MetricsProvider] that reads a queue's Stats when it needs them. Its queues make no
// metrics and have no goroutine. They count inside, several times as fast as pushing every change.
type StatsProvider interface {
	MetricsProvider
	// HistogramBounds returns the longest time that each bucket takes, in seconds, ascending and not NaN.
	// Otherwise making a queue with a name panics (redisqueue.New returns an error). Nil means powers of ten
	// from 10 ns to 1,000 s.
	HistogramBounds() []float64
	// WatchQueue is called once for a queue that is made with that name, no matter how many layers it has.
	// stats may be called at any time, takes constant time and does not block. A key that moves between layers
	// may be counted twice, but is never missing. (A delaying queue on top of an existing queue is watched on
	// its own: the numbers of both add up, and a moving key may be missing for a moment.) When ShuttingDown is
	// set and Queued, Processing and Waiting are zero, only UnmatchedDones still changes. A queue that is never
	// shut down lives as long as stats.
	WatchQueue(name string, stats func() Stats)
}

// SetProvider sets the provider of all queues that are made afterwards with a name and without a provider of
// their own. Only the first call has an effect; nil is ignored.
func SetProvider(metricsProvider MetricsProvider) {
	if p := any(metricsProvider); p != nil {
		observe.Global.CompareAndSwap(nil, &p)
	}
}

// StatsProviderFor returns configured, or the provider of SetProvider if configured is nil, as far as it is
// a StatsProvider, and otherwise nil. It is for queues of other packages.
func StatsProviderFor(configured MetricsProvider) StatsProvider {
	p, _ := providerFor("a queue", configured).(StatsProvider)
	return p
}

// providerFor returns the provider of a queue's metrics, or nil if the queue has no metrics.
func providerFor(name string, configured MetricsProvider) MetricsProvider {
	if name == "" {
		return nil
	}
	if configured != nil {
		return configured
	}
	if global := observe.Global.Load(); global != nil {
		return (*global).(MetricsProvider)
	}
	return nil
}

// newObserver returns what keeps a queue's times and pushes its metrics, or nil without a provider.
func newObserver(name string, provider MetricsProvider, c clock.WithTicker) *observe.Observer {
	if provider == nil {
		return nil
	}
	if p, ok := provider.(StatsProvider); ok {
		buckets, err := observe.SharedBuckets(p.HistogramBounds())
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
