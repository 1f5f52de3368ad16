package prom

import (
	"maps"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/metrics"
	"github.com/keyedqueue/workqueue/worker"
)

// Collect reads all queues and pools and sends their metrics, which blocks until they are received.
func (p *Provider) Collect(ch chan<- prometheus.Metric) {
	p.collectQueues(ch)
	p.sendPools(ch)
}

func (p *Provider) collectQueues(ch chan<- prometheus.Metric) {
	s := newScrape(p, p.families)
	p.mu.Lock()
	pushed := maps.Clone(p.mu.pushed)
	p.mu.Unlock()
	var queues metrics.Total[workqueue.Stats] // It would be allocated for every name if it were the loop's.
	for queues = range p.queues.All() {
		p.sendName(ch, s, &queues, true, pushed[queues.Name])
		delete(pushed, queues.Name)
	}
	for name, pushes := range pushed {
		p.sendName(ch, s, &metrics.Total[workqueue.Stats]{Name: name}, false, pushes)
	}
}

func (p *Provider) sendPools(ch chan<- prometheus.Metric) {
	s := newScrape(p, p.poolFamilies)
	var t metrics.Total[worker.Stats] // As in collectQueues.
	for t = range p.pools.All() {
		name := s.nameOf(t.Name)
		if metrics.CountsNoCalls(&t.Sum) {
			// Others export counts of calls under this name, and this pool has none, so no metric comes twice.
			name = t.Name
		}
		for i := range p.poolFamilies {
			f := &p.poolFamilies[i]
			if s.descs[i] != nil && f.IsExported(&t.Sum, t.Live) {
				f.sendTo(ch, s.descs[i], name, &t.Sum, p.poolBuckets)
			}
		}
	}
}

// sendName sends the metrics of one name: the sum of its queues, if there have ever been any, and of what
// was pushed, which is nil if nothing was.
func (p *Provider) sendName(ch chan<- prometheus.Metric, s *scrape, queues *metrics.Total[workqueue.Stats],
	hasQueues bool, pushes *pushed) {
	if pushes != nil {
		pushes.addTo(&queues.Sum, p.buckets)
	}
	name := s.nameOf(queues.Name)
	cache := p.cacheOf(name)
	// A name's unsplit metrics come from the cache and one piece of memory, so sendTo is for split ones alone.
	unsplit := make([]metric, 0, len(p.families))
	for i := range p.families {
		f := &p.families[i]
		isPushed := pushes != nil && i < numPushed && pushes[i] != nil
		has := isPushed || hasQueues && f.IsExported(&queues.Sum, queues.Live)
		if s.descs[i] == nil || !has {
			continue
		}
		if f.Split != nil {
			f.sendTo(ch, s.descs[i], name, &queues.Sum, p.buckets)
			continue
		}
		unsplit = append(unsplit, metric{desc: s.descs[i], labels: cache.labels, gauge: f.Gauge})
		m := &unsplit[len(unsplit)-1]
		if f.Histogram != nil {
			m.histogram = p.buckets.cached(&cache.histograms[i], f.Histogram(&queues.Sum))
		} else {
			m.value = f.Value(&queues.Sum)
		}
		ch <- m
	}
}

// nameCache keeps what the metrics of one name have in common from scrape to scrape.
type nameCache struct {
	// labels are for all families except the split ones.
	labels []*dto.LabelPair
	// histograms are from the last scrape, by family: most of what a scrape allocates, and of an idle queue
	// they stay as they are.
	histograms []atomic.Pointer[cachedHistogram]
}

func (p *Provider) cacheOf(name string) *nameCache {
	p.mu.Lock()
	defer p.mu.Unlock()
	cache := p.mu.names[name]
	if cache == nil {
		histograms := make([]atomic.Pointer[cachedHistogram], len(p.families))
		cache = &nameCache{labels: p.families[metrics.Adds].labels(name), histograms: histograms}
		p.mu.names[name] = cache
	}
	return cache
}

// scrape is how the metrics of one scrape must look to fit what else is in the registry.
type scrape struct {
	// descs are the descriptors of the families, nil for those that are left out.
	descs []*prometheus.Desc
	// taken are the names that others have.
	taken map[string]bool
}

func newScrape[S any](p *Provider, families []family[S]) *scrape {
	s := &scrape{descs: make([]*prometheus.Desc, len(families)), taken: map[string]bool{}}
	for i := range families {
		f := &families[i]
		if s.descs[i] = f.descs[0]; p.joined != nil {
			theirs := p.joined.find(f.descs)
			s.descs[i] = theirs.desc
			theirs.addNames(s.taken, f.nameLabels[0])
		}
	}
	return s
}

// nameOf returns the name under which a queue or pool with that name is exported.
func (s *scrape) nameOf(name string) string {
	if s.taken[name] {
		return name + nameSuffix
	}
	return name
}

// metric is one value of a family at one scrape. Once it is sent it does not change, so Write may be called
// by several goroutines at once.
type metric struct {
	desc      *prometheus.Desc
	labels    []*dto.LabelPair // sorted by name
	histogram *dto.Histogram   // nil for gauges and counters
	gauge     bool
	value     float64
}

// Desc returns the descriptor of the metric's family.
func (m *metric) Desc() *prometheus.Desc { return m.desc }

// Write fills in out.
func (m *metric) Write(out *dto.Metric) error {
	out.Label = m.labels
	switch {
	case m.histogram != nil:
		out.Histogram = m.histogram
	case m.gauge:
		out.Gauge = &dto.Gauge{Value: &m.value}
	default:
		out.Counter = &dto.Counter{Value: &m.value}
	}
	return nil
}
