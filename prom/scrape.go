package prom

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Describe sends the descriptors of all metrics.
func (p *Provider) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range p.descs {
		ch <- d
	}
}

// Collect reads all queues and sends their metrics, in the order of the names, which saves the registry
// most of its sorting. A panic, which only a queue's clock can cause, becomes an error of the scrape: registries
// before client_golang v1.24 let it end the program.
func (p *Provider) Collect(ch chan<- prometheus.Metric) {
	defer func() {
		if v := recover(); v != nil {
			err := fmt.Errorf("reading the queues panicked: %v\n%s", v, debug.Stack())
			ch <- prometheus.NewInvalidMetric(p.descs[0], err)
		}
	}()
	p.scrape(p.allSeries(), func(_ family, m *sample) { ch <- m })
}

// Gather reads all queues and returns what a registry would that has this provider alone, for half of the
// processor time: a registry checks each metric at each scrape, and here nothing can be wrong. It is for
// programs with thousands of names, which serve it beside a registry that does not have the provider, nor
// metrics of these names. [prometheus.Gatherers] would check everything again; the example does without.
//
// The caller may keep what it returns, but must not change it. The error is always nil. If a queue's clock
// panics, so does Gather.
func (p *Provider) Gather() ([]*dto.MetricFamily, error) {
	names := p.allSeries()
	var metrics [numFamilies + 1][]*dto.Metric
	var unused []dto.Metric // made many at a time
	p.scrape(names, func(f family, m *sample) {
		if metrics[f] == nil {
			metrics[f] = make([]*dto.Metric, 0, len(names))
		}
		if len(unused) == 0 {
			unused = make([]dto.Metric, 64)
		}
		m.fill(&unused[0])
		metrics[f] = append(metrics[f], &unused[0])
		unused = unused[1:]
	})
	var all []*dto.MetricFamily
	for f := range family(len(metrics)) {
		if len(metrics[f]) > 0 {
			name, help := f.fullName(p.namespace), families[f].help
			all = append(all, &dto.MetricFamily{
				Name: &name, Help: &help, Type: f.kind().Enum(),
				Metric: metrics[f],
			})
		}
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, nil
}

// scrape reads the queues of those names, one name after the other, and yields their metrics.
func (p *Provider) scrape(names []*series, yield func(family, *sample)) {
	for _, s := range names {
		v, present, ended := s.read()
		if ended > 0 {
			p.forget(ended)
		}
		samples := p.samples(s, v)
		for f := range samples {
			if present.has(family(f)) {
				yield(family(f), &samples[f])
			}
		}
		priorities := v.priorities.samples(p.descs[byPriority], s.labels)
		for i := range priorities {
			yield(byPriority, &priorities[i])
		}
	}
}
