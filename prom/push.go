package prom

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/metrics"
)

// numPushed is the number of the first metrics of queues, to which callers can push.
const numPushed = metrics.Retries + 1

// pushed are the metrics of one name that callers push to, by family. Those that no caller has asked for are
// nil.
type pushed [numPushed]prometheus.Metric

func (m *pushed) addTo(st *workqueue.Stats, b *buckets) {
	var read [numPushed]dto.Metric
	for f := range m {
		if m[f] != nil {
			_ = m[f].Write(&read[f]) // The metrics of client_golang return no error.
		}
	}
	seconds := func(f int) time.Duration {
		return time.Duration(read[f].Gauge.GetValue() * float64(time.Second))
	}
	st.Queued += int(read[metrics.Depth].Gauge.GetValue())
	st.UnfinishedWork += seconds(metrics.UnfinishedWork)
	st.LongestRunning = max(st.LongestRunning, seconds(metrics.LongestRunning))
	st.Adds += uint64(read[metrics.Adds].Counter.GetValue())
	st.Retries += uint64(read[metrics.Retries].Counter.GetValue())
	st.Latency = st.Latency.Plus(b.times(read[metrics.QueueDuration].Histogram))
	st.WorkDuration = st.WorkDuration.Plus(b.times(read[metrics.WorkDuration].Histogram))
}

func newGauge() prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"}) }

func newCounter() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "c"}) }

// newHistogram returns one with the bounds of a queue's, so that both can be added up.
func (b *buckets) newHistogram() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: b.bounds})
}

// pushTo returns the metric of that family and name, which create makes if it is missing.
func pushTo[M prometheus.Metric](p *Provider, f int, name string, create func() M) M {
	name = strings.ToValidUTF8(name, "\uFFFD")
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.mu.pushed[name]
	if own == nil {
		own = &pushed{}
	}
	if own[f] == nil {
		more := *own // Scrapes read the old ones without the lock.
		more[f] = create()
		own = &more
		p.mu.pushed[name] = own
	}
	return own[f].(M)
}

// pusher has the interfaces of package workqueue.
type pusher = Adapter[workqueue.GaugeMetric, workqueue.CounterMetric, workqueue.HistogramMetric,
	workqueue.SettableGaugeMetric]

// Adapter is a [Provider] whose methods return the interfaces of another package. It is made by [For].
type Adapter[G, C, H, S any] struct{ provider *Provider }

// For returns p as the provider of a package that has metric interfaces of its own: gauges G with Inc and
// Dec, counters C with Inc, histograms H with Observe, and settable gauges S with Set. This gives client-go's
// queues the same metrics:
//
//	clientgo.SetProvider(prom.For[clientgo.GaugeMetric, clientgo.CounterMetric,
//		clientgo.HistogramMetric, clientgo.SettableGaugeMetric](p))
//
// For panics if p's metrics do not implement these interfaces.
func For[G, C, H, S any](p *Provider) Adapter[G, C, H, S] {
	convert[G](newGauge())
	convert[C](newCounter())
	convert[H](p.buckets.newHistogram())
	convert[S](newGauge())
	return Adapter[G, C, H, S]{p}
}

func convert[I any](metric any) I {
	i, ok := metric.(I)
	if !ok {
		panic(fmt.Sprintf("prom: %T does not implement %v", metric, reflect.TypeFor[I]()))
	}
	return i
}

// NewDepthMetric returns the gauge workqueue_depth of that name, which all its callers share.
func (a Adapter[G, C, H, S]) NewDepthMetric(name string) G {
	return convert[G](pushTo(a.provider, metrics.Depth, name, newGauge))
}

// NewUnfinishedWorkSecondsMetric returns the gauge workqueue_unfinished_work_seconds of that
// name, which all its callers share.
func (a Adapter[G, C, H, S]) NewUnfinishedWorkSecondsMetric(name string) S {
	return convert[S](pushTo(a.provider, metrics.UnfinishedWork, name, newGauge))
}

// NewLongestRunningProcessorSecondsMetric returns the gauge workqueue_longest_running_processor_seconds of
// that name, which all its callers share.
func (a Adapter[G, C, H, S]) NewLongestRunningProcessorSecondsMetric(name string) S {
	return convert[S](pushTo(a.provider, metrics.LongestRunning, name, newGauge))
}

// NewAddsMetric returns the counter workqueue_adds_total of that name, which all its callers share.
func (a Adapter[G, C, H, S]) NewAddsMetric(name string) C {
	return convert[C](pushTo(a.provider, metrics.Adds, name, newCounter))
}

// NewRetriesMetric returns the counter workqueue_retries_total of that name, which all its callers share.
func (a Adapter[G, C, H, S]) NewRetriesMetric(name string) C {
	return convert[C](pushTo(a.provider, metrics.Retries, name, newCounter))
}

// NewLatencyMetric returns the histogram workqueue_queue_duration_seconds of that name, which all its callers
// share.
func (a Adapter[G, C, H, S]) NewLatencyMetric(name string) H {
	return convert[H](pushTo(a.provider, metrics.QueueDuration, name, a.provider.buckets.newHistogram))
}

// NewWorkDurationMetric returns the histogram workqueue_work_duration_seconds of that name, which all its
// callers share.
func (a Adapter[G, C, H, S]) NewWorkDurationMetric(name string) H {
	return convert[H](pushTo(a.provider, metrics.WorkDuration, name, a.provider.buckets.newHistogram))
}
