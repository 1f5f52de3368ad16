package testkit

import (
	"fmt"
	"slices"
	"sync"

	"github.com/keyedqueue/workqueue"
)

// Recorder is a MetricsProvider that remembers everything. Its metrics have short names: depth, adds, retries,
// latency, work, unfinished and longest.
type Recorder struct {
	// LeaveOut is the metric that it does not make.
	LeaveOut string
	// On, unless nil, is called with the metric's name before a metric changes.
	On func(metric string)

	mu       sync.Mutex
	made     []string // "metric of queue"
	values   map[string]float64
	observed map[string][]float64
}

var _ workqueue.MetricsProvider = &Recorder{}

// Made returns what has been made, each as "metric of queue", in order.
func (r *Recorder) Made() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.made)
}

// Value returns the value of a metric. That of a histogram is the number of observations.
func (r *Recorder) Value(metric string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values[metric]
}

// Observations returns what a histogram has observed.
func (r *Recorder) Observations(metric string) []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.observed[metric])
}

// Values are metrics by their short names: a number, or a histogram's observations as a []float64.
type Values = map[string]any

// Seconds makes observations for Values.
func Seconds(s ...float64) []float64 { return s }

// Want compares the metrics that are in want.
func (r *Recorder) Want(t TB, when string, want Values) {
	t.Helper()
	for metric, w := range want {
		if seconds, ok := w.([]float64); ok {
			if got := r.Observations(metric); !slices.Equal(got, seconds) {
				t.Errorf("%s: %s = %v, want %v", when, metric, got, seconds)
			}
		} else if got := r.Value(metric); fmt.Sprint(got) != fmt.Sprint(w) {
			t.Errorf("%s: %s = %v, want %v", when, metric, got, w)
		}
	}
}

// PanicOnce makes the next change of metric panic.
func (r *Recorder) PanicOnce(metric string) {
	r.On = func(called string) {
		if called == metric {
			r.On = nil
			panic("metric " + metric)
		}
	}
}

// recorded is a metric of any kind.
type recorded struct {
	r      *Recorder
	metric string
}

func (m recorded) change(f func(value float64) float64) {
	if m.r.On != nil {
		m.r.On(m.metric)
	}
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	m.r.values[m.metric] = f(m.r.values[m.metric])
}

func (m recorded) Inc()            { m.change(func(v float64) float64 { return v + 1 }) }
func (m recorded) Dec()            { m.change(func(v float64) float64 { return v - 1 }) }
func (m recorded) Set(set float64) { m.change(func(float64) float64 { return set }) }
func (m recorded) Observe(o float64) {
	m.change(func(v float64) float64 {
		m.r.observed[m.metric] = append(m.r.observed[m.metric], o)
		return v + 1
	})
}

// newMetric makes a metric as an M, which is one of the interfaces that recorded implements, or returns nil.
func newMetric[M any](r *Recorder, metric, queue string) (m M) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, metric+" of "+queue)
	if r.values == nil {
		r.values, r.observed = make(map[string]float64), make(map[string][]float64)
	}
	if metric != r.LeaveOut {
		m = any(recorded{r, metric}).(M)
	}
	return m
}

// The methods of a MetricsProvider.

func (r *Recorder) NewDepthMetric(name string) workqueue.GaugeMetric {
	return newMetric[workqueue.GaugeMetric](r, "depth", name)
}

func (r *Recorder) NewAddsMetric(name string) workqueue.CounterMetric {
	return newMetric[workqueue.CounterMetric](r, "adds", name)
}

func (r *Recorder) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return newMetric[workqueue.HistogramMetric](r, "latency", name)
}

func (r *Recorder) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return newMetric[workqueue.HistogramMetric](r, "work", name)
}

func (r *Recorder) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return newMetric[workqueue.SettableGaugeMetric](r, "unfinished", name)
}

func (r *Recorder) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return newMetric[workqueue.SettableGaugeMetric](r, "longest", name)
}

func (r *Recorder) NewRetriesMetric(name string) workqueue.CounterMetric {
	return newMetric[workqueue.CounterMetric](r, "retries", name)
}
