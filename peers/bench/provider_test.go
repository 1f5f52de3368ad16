package bench

import (
	"github.com/prometheus/client_golang/prometheus"
	clientgo "k8s.io/client-go/util/workqueue"
)

// pushProvider has the metrics that Kubernetes has, as ordinary metrics of client_golang.
type pushProvider struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

func newPushProvider(registry *prometheus.Registry) clientgo.MetricsProvider {
	labels := []string{"name"}
	gauge := func(name string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name}, labels)
	}
	counter := func(name string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name}, labels)
	}
	histogram := func(name string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Buckets: prometheus.ExponentialBuckets(1e-8, 10, 10),
		}, labels)
	}
	p := &pushProvider{
		depth:      gauge("depth"),
		unfinished: gauge("unfinished_work_seconds"),
		longest:    gauge("longest_running_processor_seconds"),
		adds:       counter("adds_total"),
		retries:    counter("retries_total"),
		latency:    histogram("queue_duration_seconds"),
		work:       histogram("work_duration_seconds"),
	}
	registry.MustRegister(p.depth, p.unfinished, p.longest, p.adds, p.retries, p.latency, p.work)
	return p
}

func (p *pushProvider) NewDepthMetric(name string) clientgo.GaugeMetric {
	return p.depth.WithLabelValues(name)
}

func (p *pushProvider) NewAddsMetric(name string) clientgo.CounterMetric {
	return p.adds.WithLabelValues(name)
}

func (p *pushProvider) NewLatencyMetric(name string) clientgo.HistogramMetric {
	return p.latency.WithLabelValues(name)
}

func (p *pushProvider) NewWorkDurationMetric(name string) clientgo.HistogramMetric {
	return p.work.WithLabelValues(name)
}

func (p *pushProvider) NewUnfinishedWorkSecondsMetric(name string) clientgo.SettableGaugeMetric {
	return p.unfinished.WithLabelValues(name)
}

func (p *pushProvider) NewLongestRunningProcessorSecondsMetric(name string) clientgo.SettableGaugeMetric {
	return p.longest.WithLabelValues(name)
}

func (p *pushProvider) NewRetriesMetric(name string) clientgo.CounterMetric {
	return p.retries.WithLabelValues(name)
}

// noMetrics is a provider of metrics that do nothing.
type noMetrics struct{}

type noMetric struct{}

func (noMetric) Inc()            {}
func (noMetric) Dec()            {}
func (noMetric) Set(float64)     {}
func (noMetric) Observe(float64) {}

func (noMetrics) NewDepthMetric(string) clientgo.GaugeMetric            { return noMetric{} }
func (noMetrics) NewAddsMetric(string) clientgo.CounterMetric           { return noMetric{} }
func (noMetrics) NewLatencyMetric(string) clientgo.HistogramMetric      { return noMetric{} }
func (noMetrics) NewWorkDurationMetric(string) clientgo.HistogramMetric { return noMetric{} }
func (noMetrics) NewUnfinishedWorkSecondsMetric(string) clientgo.SettableGaugeMetric {
	return noMetric{}
}
func (noMetrics) NewLongestRunningProcessorSecondsMetric(string) clientgo.SettableGaugeMetric {
	return noMetric{}
}
func (noMetrics) NewRetriesMetric(string) clientgo.CounterMetric { return noMetric{} }
