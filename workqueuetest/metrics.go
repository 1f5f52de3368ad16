package workqueuetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

// recorder is a MetricsProvider that remembers. Its metrics are known by short names. The observations
// of a histogram are a list.
type recorder struct {
	mu     sync.Mutex
	names  map[string]bool // of queues
	values map[string][]float64
}

// recorded is a metric of any kind.
type recorded struct {
	r      *recorder
	metric string
}

func (m recorded) change(f func([]float64) []float64) {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	m.r.values[m.metric] = f(m.r.values[m.metric])
}

func (m recorded) add(n float64) {
	m.change(func(v []float64) []float64 {
		if len(v) == 0 {
			v = []float64{0}
		}
		return []float64{v[0] + n}
	})
}

func (m recorded) Inc()              { m.add(1) }
func (m recorded) Dec()              { m.add(-1) }
func (m recorded) Set(f float64)     { m.change(func([]float64) []float64 { return []float64{f} }) }
func (m recorded) Observe(f float64) { m.change(func(v []float64) []float64 { return append(v, f) }) }

func (r *recorder) make(metric, name string) recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values == nil {
		r.names, r.values = make(map[string]bool), make(map[string][]float64)
	}
	r.names[name] = true
	return recorded{r, metric}
}

func (r *recorder) NewDepthMetric(name string) workqueue.GaugeMetric { return r.make("depth", name) }
func (r *recorder) NewAddsMetric(name string) workqueue.CounterMetric {
	return r.make("adds", name)
}
func (r *recorder) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return r.make("latency", name)
}
func (r *recorder) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return r.make("work", name)
}
func (r *recorder) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return r.make("unfinished", name)
}
func (r *recorder) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return r.make("longest", name)
}
func (r *recorder) NewRetriesMetric(name string) workqueue.CounterMetric {
	return r.make("retries", name)
}

// value returns that of a gauge or a counter.
func (r *recorder) value(metric string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.values[metric]; len(v) > 0 {
		return v[0]
	}
	return 0
}

// want asserts metrics. A value or an observation that is not listed must be zero, or missing.
func (r *recorder) want(run *run, when string, want map[string][]float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, metric := range []string{"depth", "adds", "latency", "work", "unfinished", "longest", "retries"} {
		got, w := r.values[metric], want[metric]
		if !slices.Equal(got, w) && !(len(w) == 0 && slices.Equal(got, []float64{0})) {
			run.Fatalf("%s: metric %s is %v, want %v", when, metric, got, w)
		}
	}
}

func metricsCases() []testCase {
	return []testCase{
		bubbled("Metrics", "The metrics tell how many keys are queued, were added, and how long each waited and was worked on.", tryMetrics),
		bubbled("MetricsOfDelays", "A call of AddAfter counts as a retry. The key's latency begins when it comes due.", tryMetricsOfDelays),
		bubbled("MetricsAfterShutDown", "When the last key is done after a shutdown, the gauges are zero.", tryMetricsAfterShutDown),
		bubbled("MetricsOfUnnamedQueue", "A queue without a name has no metrics.", tryMetricsOfUnnamedQueue),
	}
}

const queueName = "conformance"

// measured builds a queue with metrics. The case is skipped on a fake clock that does not make the metrics
// tick: in a bubble the real one does as well.
func (r *run) measured() (fifo, *recorder) {
	if r.suite.NoMetrics {
		r.lacks("metrics")
	}
	metrics := &recorder{}
	q := r.queue(Config[string]{Name: queueName, MetricsProvider: metrics})
	// client-go's clock begins to tick when its goroutine gets to it.
	synctest.Wait()
	return q, metrics
}

type values = map[string][]float64

func one(f float64) []float64 { return []float64{f} }

func tryMetrics(r *run) {
	q, m := r.measured()
	// The steps are multiples of 500 ms, which is how often the last two of the metrics are set.
	q.Add("a")
	r.pass(time.Second)
	q.Add("a") // changes nothing, the latency runs from the first
	q.Add("b")
	m.want(r, "a and b queued", values{"depth": one(2), "adds": one(2)})
	r.pass(time.Second)
	r.hold(q, "a")
	m.want(r, "a held", values{"depth": one(1), "adds": one(2), "latency": {2}})
	r.pass(time.Second)
	q.Add("a")
	q.Add("a")
	m.want(r, "a held and added", values{"depth": one(2), "adds": one(3), "latency": {2}, "unfinished": one(1), "longest": one(1)})
	r.hold(q, "b")
	r.pass(2 * time.Second)
	q.Done("a")
	m.want(r, "a done and queued", values{
		"depth": one(1), "adds": one(3), "latency": {2, 2}, "work": {3}, "unfinished": one(5), "longest": one(3),
	})
	r.pass(time.Second)
	r.hold(q, "a") // its latency runs from the Add while it was held
	q.Done("b")
	q.Done("a")
	r.pass(time.Second)
	m.want(r, "everything done", values{"adds": one(3), "latency": {2, 2, 3}, "work": {3, 3, 0}})
	if names := slices.Collect(maps.Keys(m.names)); !slices.Equal(names, []string{queueName}) {
		r.Fatalf("metrics were made of queues %q, want %q", names, queueName)
	}
	r.check(q)
}

func tryMetricsOfDelays(r *run) {
	f, m := r.measured()
	q, ok := f.(delaying)
	if !ok {
		r.lacks("AddAfter")
	}
	q.AddAfter("a", time.Second)
	q.AddAfter("a", 2*time.Second)
	q.AddAfter("b", 0)
	q.AddAfter("c", -1)
	m.want(r, "four calls of AddAfter", values{"retries": one(4), "adds": one(2), "depth": one(2)})
	r.pass(time.Second)
	r.pass(time.Second)
	r.process(q, "a second after a came due", "b", "c", "a")
	m.want(r, "everything done", values{
		"retries": one(4), "adds": one(3), "latency": {2, 2, 1}, "work": {0, 0, 0},
	})
	q.ShutDown()
	q.AddAfter("d", 0)
	q.AddAfter("d", time.Second)
	m.want(r, "AddAfter after shutdown", values{
		"retries": one(4), "adds": one(3), "latency": {2, 2, 1}, "work": {0, 0, 0},
	})
}

func tryMetricsAfterShutDown(r *run) {
	for _, end := range []string{"ShutDown", "ShutDownWithDrain"} {
		q, m := r.measured()
		q.Add("a")
		q.Add("b")
		r.hold(q, "a", "b")
		r.pass(2 * time.Second)
		e := enders(q)[0]
		if end != e.name {
			e = enders(q)[1]
		}
		c := e.start(r, q)
		synctest.Wait()
		q.Done("a")
		q.Done("b")
		c.mustReturn("with nothing left")
		m.want(r, fmt.Sprintf("%s with keys held, and then Done", end), values{"adds": one(2), "latency": {0, 0}, "work": {2, 2}})
	}
}

func tryMetricsOfUnnamedQueue(r *run) {
	if r.suite.NoMetrics {
		r.lacks("metrics")
	}
	m := &recorder{}
	q := r.queue(Config[string]{MetricsProvider: m})
	q.Add("a")
	r.process(q, "a added", "a")
	if len(m.names) > 0 {
		r.Fatalf("metrics were made of queues %q", slices.Collect(maps.Keys(m.names)))
	}
}
