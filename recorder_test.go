package workqueue_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/keyedqueue/workqueue"
)

// recorder is a MetricsProvider that remembers. Its metrics are known by short names.
type recorder struct {
	// leaveOut is the metric that it does not make.
	leaveOut string

	mu       sync.Mutex
	made     []string // "metric of queue"
	values   map[string]float64
	observed map[string][]float64
	// on, unless nil, is called before a metric changes, with its name.
	on func(metric string)
}

func (r *recorder) make(metric, queue string) *recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, metric+" of "+queue)
	if r.values == nil {
		r.values, r.observed = make(map[string]float64), make(map[string][]float64)
	}
	if metric == r.leaveOut {
		return nil
	}
	return &recorded{r, metric}
}

func (r *recorder) value(metric string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values[metric]
}

func (r *recorder) observations(metric string) []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.observed[metric])
}

// want asserts the value of each metric that is given, or its observations.
func (r *recorder) want(t *testing.T, when string, want map[string]any) {
	t.Helper()
	for metric, w := range want {
		if seconds, ok := w.([]float64); ok {
			if got := r.observations(metric); !slices.Equal(got, seconds) {
				t.Errorf("%s: %s = %v, want %v", when, metric, got, seconds)
			}
		} else if got := r.value(metric); fmt.Sprint(got) != fmt.Sprint(w) {
			t.Errorf("%s: %s = %v, want %v", when, metric, got, w)
		}
	}
}

// panicOnce makes the next change of metric panic.
func (r *recorder) panicOnce(metric string) {
	r.on = func(called string) {
		if called == metric {
			r.on = nil
			panic("metric " + metric)
		}
	}
}

// recorded is a metric of any kind.
type recorded struct {
	r      *recorder
	metric string
}

func (m *recorded) change(f func(value float64) float64) {
	if m.r.on != nil {
		m.r.on(m.metric)
	}
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	m.r.values[m.metric] = f(m.r.values[m.metric])
}

func (m *recorded) Inc()            { m.change(func(v float64) float64 { return v + 1 }) }
func (m *recorded) Dec()            { m.change(func(v float64) float64 { return v - 1 }) }
func (m *recorded) Set(set float64) { m.change(func(float64) float64 { return set }) }
func (m *recorded) Observe(o float64) {
	m.change(func(v float64) float64 {
		m.r.observed[m.metric] = append(m.r.observed[m.metric], o)
		return v + 1
	})
}

func (r *recorder) NewDepthMetric(name string) workqueue.GaugeMetric {
	if m := r.make("depth", name); m != nil {
		return m
	}
	return nil
}

func (r *recorder) NewAddsMetric(name string) workqueue.CounterMetric {
	if m := r.make("adds", name); m != nil {
		return m
	}
	return nil
}

func (r *recorder) NewLatencyMetric(name string) workqueue.HistogramMetric {
	if m := r.make("latency", name); m != nil {
		return m
	}
	return nil
}

func (r *recorder) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	if m := r.make("work", name); m != nil {
		return m
	}
	return nil
}

func (r *recorder) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	if m := r.make("unfinished", name); m != nil {
		return m
	}
	return nil
}

func (r *recorder) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	if m := r.make("longest", name); m != nil {
		return m
	}
	return nil
}

func (r *recorder) NewRetriesMetric(name string) workqueue.CounterMetric {
	if m := r.make("retries", name); m != nil {
		return m
	}
	return nil
}

var _ workqueue.MetricsProvider = &recorder{}

// values and seconds shorten the tables below.
type values = map[string]any

func seconds(s ...float64) []float64 { return s }
