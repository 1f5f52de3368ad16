package main

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// metrics counts. It is the provider of all queues that have a name.
type metrics struct {
	mu     sync.Mutex
	counts map[string]int // by metric, guarded by mu
}

var _ workqueue.MetricsProvider = (*metrics)(nil)

func newMetrics() *metrics { return &metrics{counts: map[string]int{}} }

func (m *metrics) add(name string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[name] += n
}

// metric is any metric.
type metric struct {
	provider *metrics
	name     string
}

var _ workqueue.SummaryMetric = metric{}

func (m metric) Inc()            { m.provider.add(m.name, 1) }
func (m metric) Dec()            { m.provider.add(m.name, -1) }
func (m metric) Observe(float64) { m.provider.add(m.name, 1) }

// Set is called as often as the real clock ticks, so counting would make each run another one.
func (m metric) Set(float64) { m.provider.add(m.name, 0) }

func (m *metrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return metric{m, name + " depth"}
}

func (m *metrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return metric{m, name + " adds"}
}

func (m *metrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return metric{m, name + " latency"}
}

func (m *metrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return metric{m, name + " work duration"}
}

func (m *metrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return metric{m, name + " unfinished work"}
}

func (m *metrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return metric{m, name + " longest running"}
}

func (m *metrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return metric{m, name + " retries"}
}

func (m *metrics) print(w io.Writer) {
	// What every metric has in common with itself, called as the package's users may call it.
	for _, call := range []func(metric){
		func(m metric) { workqueue.GaugeMetric(m).Inc() },
		func(m metric) { workqueue.GaugeMetric(m).Dec() },
		func(m metric) { workqueue.CounterMetric(m).Inc() },
		func(m metric) { workqueue.SettableGaugeMetric(m).Set(1) },
		func(m metric) { workqueue.SummaryMetric(m).Observe(1) },
		func(m metric) { workqueue.HistogramMetric(m).Observe(1) },
	} {
		call(metric{m, "by hand"})
	}
	call := workqueue.MetricsProvider(m)
	call.NewDepthMetric("by hand")
	call.NewAddsMetric("by hand")
	call.NewLatencyMetric("by hand")
	call.NewWorkDurationMetric("by hand")
	call.NewUnfinishedWorkSecondsMetric("by hand")
	call.NewLongestRunningProcessorSecondsMetric("by hand")
	call.NewRetriesMetric("by hand")

	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for name, n := range m.counts {
		if n != 0 {
			lines = append(lines, fmt.Sprintln(name, n))
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		io.WriteString(w, line)
	}
}
