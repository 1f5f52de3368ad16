package prom

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/keyedqueue/workqueue"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

var (
	_ workqueue.StatsProvider = (*Provider)(nil)
	_ prometheus.Collector    = (*Provider)(nil)
	_ prometheus.Gatherer     = (*Provider)(nil)
)

// Provider is a [workqueue.MetricsProvider], and the [prometheus.Collector] that collects these metrics.
// It is made by [NewProvider] or [New]; its zero value is not usable. All methods are safe for concurrent
// use.
type Provider struct {
	namespace string
	descs     [numFamilies + 1]*prometheus.Desc
	buckets   *buckets

	mu sync.Mutex // guards what follows; nothing else is locked under it
	// byName and sorted have the same series, but sorted is in no order while it is unsorted. An array that
	// sorted has once pointed to is not changed when it has been sorted.
	byName   map[string]*series
	sorted   []*series
	unsorted bool
	// layers is how many layers of queues are watched. When it comes to sweepAt, those that have ended are
	// looked for.
	layers, sweepAt int
}

// minSweep is how many layers may be watched before anybody looks for those that have ended.
const minSweep = 1024

// NewProvider returns a provider whose metrics are registered. It panics if the options are wrong, or if
// the registerer refuses, as it does if it has metrics of these names with the same constant labels.
func NewProvider(registerer prometheus.Registerer, opts Options) *Provider {
	p, err := New(opts)
	if err == nil {
		err = register(registerer, p)
	}
	if err != nil {
		panic(err)
	}
	return p
}

// New returns a provider whose metrics the caller has to register, and an error if the options are wrong.
func New(opts Options) (*Provider, error) {
	descs, err := opts.descs()
	if err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}
	b, err := newBuckets(opts.Buckets, opts.NativeHistogramBucketFactor)
	if err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}
	return &Provider{
		namespace: opts.Namespace, descs: descs, buckets: b, byName: map[string]*series{}, sweepAt: minSweep,
	}, nil
}

func register(registerer prometheus.Registerer, p *Provider) error {
	if registerer == nil {
		return errors.New("prom: the registerer is nil")
	}
	if err := registerer.Register(p); err != nil {
		return fmt.Errorf("prom: the registerer has metrics of these names already; "+
			"use that provider, or another Namespace or other ConstLabels: %w", err)
	}
	return nil
}

// HistogramBounds returns the upper bounds of the buckets that a queue has to count by. The caller must not
// change them.
func (p *Provider) HistogramBounds() []float64 { return p.buckets.bounds }

// WatchQueue makes the metrics of that name include a queue, which is read at every scrape until it has
// ended. It takes constant time and does not block.
func (p *Provider) WatchQueue(name string, stats func() workqueue.Stats) {
	p.seriesOf(name).watch(stats)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.layers++
	if p.layers >= p.sweepAt {
		// If nobody scrapes, nobody forgets the queues that have ended. Not here: a queue may be made
		// under a lock that reading another one needs.
		p.sweepAt = 2 * p.layers
		go p.sweep()
	}
}

// sweep forgets the queues that have ended.
func (p *Provider) sweep() {
	for _, s := range p.allSeries() {
		_, _, ended := s.read()
		p.forget(ended)
	}
}

func (p *Provider) forget(layers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.layers -= layers
	p.sweepAt = max(minSweep, 2*p.layers)
}

// seriesOf returns the series of a name, which it makes if there is none. What is not UTF-8 in a name is
// replaced, because a registry refuses it, and would let the whole scrape fail.
func (p *Provider) seriesOf(name string) *series {
	name = strings.ToValidUTF8(name, "\uFFFD")
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.byName[name]
	if s == nil {
		s = &series{name: name, labels: p.labels(name), buckets: p.buckets}
		p.byName[name] = s
		p.sorted = append(p.sorted, s)
		p.unsorted = true
	}
	return s
}

// labels returns the labels of a name. They are the same for all families.
func (p *Provider) labels(name string) []*dto.LabelPair {
	return prometheus.MakeLabelPairs(p.descs[0], []string{name, name})
}

// allSeries returns all series in the order of their names.
func (p *Provider) allSeries() []*series {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsorted {
		p.sorted = slices.Clone(p.sorted)
		slices.SortFunc(p.sorted, func(a, b *series) int { return strings.Compare(a.name, b.name) })
		p.unsorted = false
	}
	return p.sorted
}
