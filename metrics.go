package workqueue

import (
	"math"
	"sync/atomic"
	"time"

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

// MetricsProvider makes the metrics of a queue, each once for a queue that has a name. The queue
// calls them under its lock, so they should be quick and must not call the queue. A method that
// returns nil leaves that metric out.
//
// A panic of a metric reaches the caller of the queue's method. The queue stays usable and loses no
// key.
type MetricsProvider interface {
	// NewDepthMetric makes the number of keys that need processing: queued, or added again while a
	// worker holds them.
	NewDepthMetric(name string) GaugeMetric
	// NewAddsMetric makes the number of adds that changed something: those of a key that needed
	// processing already are not counted.
	NewAddsMetric(name string) CounterMetric
	// NewLatencyMetric makes the seconds from a key's first add until a worker gets it.
	NewLatencyMetric(name string) HistogramMetric
	// NewWorkDurationMetric makes the seconds from Get to Done.
	NewWorkDurationMetric(name string) HistogramMetric
	// NewUnfinishedWorkSecondsMetric makes the seconds for which keys have been held by workers that
	// are not Done, summed over these keys. It is set every 500 ms of the queue's clock and, after
	// shutdown, with every Done.
	NewUnfinishedWorkSecondsMetric(name string) SettableGaugeMetric
	// NewLongestRunningProcessorSecondsMetric makes the longest of these times.
	NewLongestRunningProcessorSecondsMetric(name string) SettableGaugeMetric
	// NewRetriesMetric makes the number of calls of AddAfter, AddRateLimited included.
	NewRetriesMetric(name string) CounterMetric
}

// globalProvider is what SetProvider set.
var globalProvider atomic.Pointer[MetricsProvider]

// SetProvider sets the provider of all queues that are made from now on with a name and without a
// provider of their own. Only the first call has an effect; nil is ignored.
func SetProvider(metricsProvider MetricsProvider) {
	if metricsProvider != nil {
		globalProvider.CompareAndSwap(nil, &metricsProvider)
	}
}

// providerFor returns the provider of a queue's metrics, or nil if the queue shall have none.
func providerFor(name string, configured MetricsProvider) MetricsProvider {
	if name == "" {
		return nil
	}
	if configured != nil {
		return configured
	}
	if global := globalProvider.Load(); global != nil {
		return *global
	}
	return nil
}

// Stats is what a queue says of itself at one moment.
type Stats struct {
	// Name is the queue's name, or empty.
	Name string

	// Queued is the number of keys that wait for a worker.
	Queued int
	// Processing is the number of keys that workers hold.
	Processing int
	// Waiting is the number of keys that wait for their time. A key can wait and be queued or held
	// at once.
	Waiting int

	// Adds counts the adds that changed something, as the metric does.
	Adds uint64
	// Retries counts the calls of AddAfter before shutdown, AddRateLimited included.
	Retries uint64
	// Dropped is the number of keys that were still waiting for their time at shutdown.
	Dropped uint64
	// UnmatchedDones counts the calls of Done for a key that no worker held, each of which is a bug in
	// the caller.
	UnmatchedDones uint64

	// OldestQueued is how long ago the key at the head of the line was added. Like the other times, it
	// is zero in a queue without metrics, which does not read the clock.
	OldestQueued time.Duration
	// LongestRunning is for how long the worker that got its key first has held it.
	LongestRunning time.Duration
	// UnfinishedWork is the sum, over all keys that workers hold, of how long they have held them.
	UnfinishedWork time.Duration
}

// queueMetrics are the metrics of one queue. Its methods are called under the queue's lock.
type queueMetrics struct {
	clock clock.WithTicker
	// epoch is when the queue was made. Times are kept as durations since then, a third of the size
	// of a time.Time. A reading by Since is also the cheaper one on the real clock.
	epoch time.Time

	depth          GaugeMetric
	adds           CounterMetric
	latency        HistogramMetric
	workDuration   HistogramMetric
	unfinishedWork SettableGaugeMetric
	longestRunning SettableGaugeMetric

	// pushed tells that the last values of unfinishedWork and longestRunning were not zero.
	pushed bool
}

// newQueueMetrics returns nil for a queue that shall have no metrics.
func newQueueMetrics(name string, configured MetricsProvider, c clock.WithTicker) *queueMetrics {
	p := providerFor(name, configured)
	if p == nil {
		return nil
	}
	return &queueMetrics{
		clock:          c,
		epoch:          c.Now(),
		depth:          orNoop(p.NewDepthMetric(name)),
		adds:           orNoop(p.NewAddsMetric(name)),
		latency:        orNoop(p.NewLatencyMetric(name)),
		workDuration:   orNoop(p.NewWorkDurationMetric(name)),
		unfinishedWork: orNoop(p.NewUnfinishedWorkSecondsMetric(name)),
		longestRunning: orNoop(p.NewLongestRunningProcessorSecondsMetric(name)),
	}
}

// newRetriesMetric returns what a delaying queue counts its retries with.
func newRetriesMetric(name string, configured MetricsProvider) CounterMetric {
	p := providerFor(name, configured)
	if p == nil {
		return noopMetric{}
	}
	return orNoop(p.NewRetriesMetric(name))
}

func (m *queueMetrics) now() time.Duration { return m.clock.Since(m.epoch) }

func (m *queueMetrics) added() {
	m.adds.Inc()
	m.depth.Inc()
}

func (m *queueMetrics) taken(latency time.Duration) {
	m.depth.Dec()
	m.latency.Observe(latency.Seconds())
}

func (m *queueMetrics) finished(startedAt time.Duration) {
	m.workDuration.Observe((m.now() - startedAt).Seconds())
}

func (m *queueMetrics) setProcessingTimes(t processingTimes) {
	m.unfinishedWork.Set(t.unfinished.seconds())
	m.longestRunning.Set(t.longest.Seconds())
	m.pushed = t != processingTimes{}
}

// settle pushes the times of a queue that is shutting down, of which no tick will push them any more:
// without it they would stay at what they were before the last workers were done.
func (m *queueMetrics) settle(t processingTimes) {
	if m.pushed || t != (processingTimes{}) {
		m.setProcessingTimes(t)
	}
}

// processingTimes tells how long workers have held keys: all together, and the first of them.
type processingTimes struct {
	unfinished durationSum
	longest    time.Duration
}

func (q *Typed[T]) processingTimesLocked() processingTimes {
	if q.processing.len == 0 {
		return processingTimes{}
	}
	now := q.metrics.now()
	return processingTimes{
		unfinished: q.started.since(now, q.processing.len),
		longest:    now - q.keys.Value(q.processing.head).startedAt,
	}
}

func (q *Typed[T]) startUnfinishedWorkLoop(period time.Duration) {
	q.stop = make(chan struct{})
	ticker := q.metrics.clock.NewTicker(period)
	q.background.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C():
				q.updateUnfinishedWork()
			case <-q.stop:
				return
			}
		}
	})
}

func (q *Typed[T]) updateUnfinishedWork() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.shuttingDown.Load() {
		q.metrics.setProcessingTimes(q.processingTimesLocked())
	}
}

// Stats returns a snapshot of the queue. It takes constant time.
func (q *Typed[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	st := Stats{
		Name:           q.name,
		Queued:         q.queued.len,
		Processing:     q.processing.len,
		Adds:           q.adds,
		UnmatchedDones: q.unmatchedDones,
	}
	if q.metrics == nil {
		return st
	}
	if q.queued.len > 0 {
		st.OldestQueued = max(0, q.metrics.now()-q.keys.Value(q.queued.head).addedAt)
	}
	t := q.processingTimesLocked()
	st.LongestRunning = max(0, t.longest)
	st.UnfinishedWork = max(0, t.unfinished.duration())
	return st
}

// durationSum is a sum of durations, kept as seconds and nanoseconds: in nanoseconds alone, 10,000
// workers that are stuck for eleven days would overflow it.
type durationSum struct{ sec, nsec int64 }

func (s *durationSum) add(d time.Duration) {
	s.sec += int64(d / time.Second)
	s.nsec += int64(d % time.Second)
}

func (s *durationSum) sub(d time.Duration) { s.add(-d) }

// since returns the sum of the times from each of the n summands of s to now.
func (s durationSum) since(now time.Duration, n int) durationSum {
	nsec := int64(now%time.Second)*int64(n) - s.nsec
	return durationSum{
		sec:  int64(now/time.Second)*int64(n) - s.sec + nsec/int64(time.Second),
		nsec: nsec % int64(time.Second),
	}
}

func (s durationSum) seconds() float64 { return float64(s.sec) + float64(s.nsec)/1e9 }

// duration returns s, or the longest Duration if s is longer.
func (s durationSum) duration() time.Duration {
	if s.sec >= int64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s.sec)*time.Second + time.Duration(s.nsec)
}

// noopMetric stands for each metric that a provider left out.
type noopMetric struct{}

func (noopMetric) Inc()            {}
func (noopMetric) Dec()            {}
func (noopMetric) Set(float64)     {}
func (noopMetric) Observe(float64) {}

func orNoop[M any](metric M) M {
	if any(metric) == nil {
		return any(noopMetric{}).(M)
	}
	return metric
}
