package compat

import (
	"slices"
	"sync"

	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
)

// recorder is a provider of metrics, for client-go's queues, that keeps what it is told.
type recorder struct {
	mu sync.Mutex
	// The rest is guarded by mu.
	adds, retries, depth  int
	unfinished, longest   float64
	latency, workDuration []float64
}

// recorded is one metric of a recorder: what a call of any of its methods does, under the lock.
type recorded struct {
	recorder *recorder
	record   func(float64)
}

func (m recorded) Inc() { m.Set(1) }
func (m recorded) Dec() { m.Set(-1) }

func (m recorded) Set(v float64) {
	m.recorder.mu.Lock()
	defer m.recorder.mu.Unlock()
	m.record(v)
}

func (m recorded) Observe(v float64) { m.Set(v) }

func (r *recorder) count(n *int) recorded {
	return recorded{r, func(v float64) { *n += int(v) }}
}

func (r *recorder) set(g *float64) recorded {
	return recorded{r, func(v float64) { *g = v }}
}

func (r *recorder) list(l *[]float64) recorded {
	return recorded{r, func(v float64) { *l = append(*l, v) }}
}

func (r *recorder) NewDepthMetric(string) peer.GaugeMetric     { return r.count(&r.depth) }
func (r *recorder) NewAddsMetric(string) peer.CounterMetric    { return r.count(&r.adds) }
func (r *recorder) NewRetriesMetric(string) peer.CounterMetric { return r.count(&r.retries) }

func (r *recorder) NewLatencyMetric(string) peer.HistogramMetric      { return r.list(&r.latency) }
func (r *recorder) NewWorkDurationMetric(string) peer.HistogramMetric { return r.list(&r.workDuration) }

func (r *recorder) NewUnfinishedWorkSecondsMetric(string) peer.SettableGaugeMetric {
	return r.set(&r.unfinished)
}

func (r *recorder) NewLongestRunningProcessorSecondsMetric(string) peer.SettableGaugeMetric {
	return r.set(&r.longest)
}

// observations returns the latencies and work durations since the last call, each in ascending order:
// several workers may have been told of their keys at once.
func (r *recorder) observations() (latency, workDuration []float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	latency, workDuration = r.latency, r.workDuration
	r.latency, r.workDuration = nil, nil
	slices.Sort(latency)
	slices.Sort(workDuration)
	return latency, workDuration
}

// ourProvider makes a provider of our metrics from one that was written for client-go. It takes methods
// and no assignment, because a result's type is part of a method's; see notInterchangeable.
type ourProvider struct{ peer.MetricsProvider }

func (p ourProvider) NewDepthMetric(name string) workqueue.GaugeMetric {
	return p.MetricsProvider.NewDepthMetric(name)
}

func (p ourProvider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.MetricsProvider.NewAddsMetric(name)
}

func (p ourProvider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.MetricsProvider.NewLatencyMetric(name)
}

func (p ourProvider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.MetricsProvider.NewWorkDurationMetric(name)
}

func (p ourProvider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.MetricsProvider.NewUnfinishedWorkSecondsMetric(name)
}

func (p ourProvider) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.MetricsProvider.NewLongestRunningProcessorSecondsMetric(name)
}

func (p ourProvider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.MetricsProvider.NewRetriesMetric(name)
}
