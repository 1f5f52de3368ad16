package workqueue

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
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
// key. Where there is no caller, when a delayed key comes due or at a tick, it ends the program, as in
// any goroutine.
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
	// NewLongestRunningProcessorSecondsMetric makes the longest of these times: that of the key that was
	// handed out first. (A clock that was set back may have another one be held for longer.)
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
	// at once, and is counted twice while it goes from one to the other. So a queue of which Queued,
	// Processing and Waiting are zero had no key at some moment.
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
	// is zero in a queue without metrics, which does not read the clock. It is zero, too, in a queue
	// with an order of the user's, of which nobody knows the head.
	OldestQueued time.Duration
	// LongestRunning is for how long the worker that got its key first has held it.
	LongestRunning time.Duration
	// UnfinishedWork is the sum, over all keys that workers hold, of how long they have held them.
	UnfinishedWork time.Duration
}

// queueMetrics are the metrics of one queue, and the times that they need. Its methods are called
// under the queue's lock. Where they change what it knows and push it to a metric, they do so in this
// order, because a metric is somebody else's code and may panic.
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

	// keys has the times of the queue's keys, by their slots there.
	keys keytable.Column[keyTimes]
	// first and last are the ends of the list of the keys that workers hold, in the order in which they
	// got them.
	first, last keytable.Slot
	// running is the length of that list, started the sum of its startedAt.
	running int
	started durationSum

	// pushed tells that the last values of unfinishedWork and longestRunning were not zero.
	pushed bool
}

// keyTimes are the times of a key, as readings of queueMetrics.now.
type keyTimes struct {
	addedAt   time.Duration // when it became dirty
	startedAt time.Duration // when a worker got it
	// prev and next are its neighbours in the list of the keys that workers hold.
	prev, next keytable.Slot
	running    bool
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

// added: the key at s has become dirty.
func (m *queueMetrics) added(s keytable.Slot) {
	m.keys.At(s).addedAt = m.now()
	m.adds.Inc()
	m.depth.Inc()
}

// taken: a worker gets the key at s.
func (m *queueMetrics) taken(s keytable.Slot) {
	now := m.now()
	k := m.keys.At(s)
	k.startedAt, k.prev, k.next, k.running = now, m.last, keytable.None, true
	if m.last == keytable.None {
		m.first = s
	} else {
		m.keys.At(m.last).next = s
	}
	m.last = s
	m.running++
	m.started.add(now)

	m.latency.Observe((now - m.keys.At(s).addedAt).Seconds())
	m.depth.Dec()
}

// finished: the worker is done with the key at s. After shutdown no tick pushes the times of the keys
// that are still held, so it is done here: they would stay what they were otherwise.
func (m *queueMetrics) finished(s keytable.Slot, shuttingDown bool) {
	k := *m.keys.At(s)
	m.unlink(s)
	m.workDuration.Observe((m.now() - k.startedAt).Seconds())
	if shuttingDown {
		m.settle()
	}
}

// unlink takes the key at s out of the list of those that workers hold.
func (m *queueMetrics) unlink(s keytable.Slot) {
	k := m.keys.At(s)
	if !k.running {
		return
	}
	k.running = false
	m.running--
	m.started.sub(k.startedAt)
	prev, next := k.prev, k.next
	if prev == keytable.None {
		m.first = next
	} else {
		m.keys.At(prev).next = next
	}
	if next == keytable.None {
		m.last = prev
	} else {
		m.keys.At(next).prev = prev
	}
}

// unfinished returns for how long workers have held their keys, summed, and the first of them.
func (m *queueMetrics) unfinished() (sum durationSum, longest time.Duration) {
	if m.running == 0 {
		return sum, 0
	}
	now := m.now()
	return m.started.since(now, m.running), now - m.keys.At(m.first).startedAt
}

// pushUnfinished pushes the metrics that depend on the time.
func (m *queueMetrics) pushUnfinished() {
	sum, longest := m.unfinished()
	m.pushed = sum != durationSum{} || longest != 0
	m.unfinishedWork.Set(sum.seconds())
	m.longestRunning.Set(longest.Seconds())
}

// settle is pushUnfinished that leaves metrics alone that are zero and stay so.
func (m *queueMetrics) settle() {
	if m.pushed || m.running > 0 {
		m.pushUnfinished()
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
		q.metrics.pushUnfinished()
	}
}

// Stats returns a snapshot of the queue. It takes constant time.
func (q *Typed[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	st := Stats{
		Name:           q.name,
		Queued:         q.queued,
		Processing:     q.processing,
		Adds:           q.adds,
		UnmatchedDones: q.unmatchedDones,
	}
	if q.metrics == nil {
		return st
	}
	if q.ready.n > 0 {
		st.OldestQueued = max(0, q.metrics.now()-q.metrics.keys.At(q.ready.peek()).addedAt)
	}
	sum, longest := q.metrics.unfinished()
	st.LongestRunning = max(0, longest)
	st.UnfinishedWork = max(0, sum.duration())
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
