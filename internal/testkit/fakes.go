package testkit

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
)

// Epoch is the time at which fake clocks start.
var Epoch = time.Date(2024, time.February, 29, 12, 0, 0, 0, time.UTC)

// NewFakeClock returns a clock that stands still at Epoch until it is stepped.
func NewFakeClock() *testingclock.FakeClock { return testingclock.NewFakeClock(Epoch) }

// HookedClock calls OnNow, unless it is nil, before each reading.
type HookedClock struct {
	clock.WithTicker
	OnNow func()
}

func (c *HookedClock) Now() time.Time {
	if c.OnNow != nil {
		c.OnNow()
	}
	return c.WithTicker.Now()
}

func (c *HookedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Times is a StatsProvider without metrics: queues that have it keep times.
type Times struct{ workqueue.MetricsProvider }

// HistogramBounds returns nil, for the usual bounds.
func (Times) HistogramBounds() []float64 { return nil }

// WatchQueue does nothing.
func (Times) WatchQueue(string, func() workqueue.Stats) {}

// Recorder is a MetricsProvider that remembers everything. Its metrics have short names: depth, adds,
// retries, latency, work, unfinished and longest.
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

// metric is a metric of every kind.
type metric interface {
	workqueue.GaugeMetric
	workqueue.SettableGaugeMetric
	workqueue.HistogramMetric
}

func (r *Recorder) newMetric(name, queue string) metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, name+" of "+queue)
	if r.values == nil {
		r.values, r.observed = make(map[string]float64), make(map[string][]float64)
	}
	if name == r.LeaveOut {
		return nil
	}
	return recorded{r, name}
}

func (r *Recorder) NewDepthMetric(q string) workqueue.GaugeMetric  { return r.newMetric("depth", q) }
func (r *Recorder) NewAddsMetric(q string) workqueue.CounterMetric { return r.newMetric("adds", q) }
func (r *Recorder) NewRetriesMetric(q string) workqueue.CounterMetric {
	return r.newMetric("retries", q)
}
func (r *Recorder) NewLatencyMetric(q string) workqueue.HistogramMetric {
	return r.newMetric("latency", q)
}
func (r *Recorder) NewWorkDurationMetric(q string) workqueue.HistogramMetric {
	return r.newMetric("work", q)
}

func (r *Recorder) NewUnfinishedWorkSecondsMetric(q string) workqueue.SettableGaugeMetric {
	return r.newMetric("unfinished", q)
}

func (r *Recorder) NewLongestRunningProcessorSecondsMetric(q string) workqueue.SettableGaugeMetric {
	return r.newMetric("longest", q)
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
