package prom

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// sample is a metric of one name at one scrape. It does not change.
type sample struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	// One of these is not nil.
	gauge     *dto.Gauge
	counter   *dto.Counter
	histogram *dto.Histogram
}

// Desc returns the descriptor of the metric's family.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write fills in out. A registry calls it on the one goroutine that checks all metrics, and which a scrape
// waits for, so everything has been made before.
func (s *sample) Write(out *dto.Metric) error {
	s.fill(out)
	return nil
}

func (s *sample) fill(out *dto.Metric) {
	out.Label, out.Gauge, out.Counter, out.Histogram = s.labels, s.gauge, s.counter, s.histogram
}

// samples returns a sample of each family, with values that must not change any more. All are in one piece
// of memory, because they live and die together.
func (p *Provider) samples(s *series, v *values) *[numFamilies]sample {
	all := &struct {
		samples    [numFamilies]sample
		gauges     [firstCounter]dto.Gauge
		counters   [firstHistogram - firstCounter]dto.Counter
		histograms [numFamilies - firstHistogram]dto.Histogram
	}{}
	for f := range numFamilies {
		sample := &all.samples[f]
		sample.desc, sample.labels = p.descs[f], s.labels
		switch f.kind() {
		case dto.MetricType_GAUGE:
			sample.gauge = &all.gauges[f]
			sample.gauge.Value = &v.numbers[f]
		case dto.MetricType_COUNTER:
			sample.counter = &all.counters[f-firstCounter]
			sample.counter.Value = &v.numbers[f]
		default:
			sample.histogram = &all.histograms[f-firstHistogram]
		}
	}
	s.buckets.fill(all.samples[latency].histogram, &v.latency)
	s.buckets.fill(all.samples[workDuration].histogram, &v.workDuration)
	return &all.samples
}
