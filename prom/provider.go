package prom

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/metrics"
	"github.com/keyedqueue/workqueue/internal/totals"
	"github.com/keyedqueue/workqueue/worker"
)

// Options are the options of a [Provider]. The zero Options make the metrics look like Kubernetes'.
type Options struct {
	// Namespace is put before the names of the metrics, with an underscore. It lets these metrics be in one
	// registry with others that have the same names.
	Namespace string

	// ConstLabels are labels that every metric has, in addition to name.
	ConstLabels prometheus.Labels

	// ControllerRuntime makes the metrics look like controller-runtime's: they have the label controller, whose
	// value is the name, too; workqueue_depth has the label priority, which is empty for a queue without priorities;
	// those of pools have names like controller_runtime_reconcile_total; the help is controller-runtime's, and so are
	// the defaults of the two fields below: powers of ten to 1,000 s, and a factor of 1.1.
	ControllerRuntime bool

	// Buckets are the upper bounds of the histograms' classic buckets, in seconds, ascending. Nil means
	// Kubernetes' own, powers of ten from 10 ns to 10 s. An empty slice that is not nil means none.
	Buckets []float64

	// NativeHistogramBucketFactor, if it is greater than one, adds native buckets to the histograms. A bucket's
	// bound is at most that factor times the one before; 1.1 is a good choice. Prometheus scrapes native
	// buckets if it is configured to, and then needs no Buckets.
	//
	// Each histogram of each queue has a counter for every native bucket that a time can fall into. With a
	// factor of 1.1 these take 4 KiB; twice and half of that with the next finer and coarser one.
	NativeHistogramBucketFactor float64
}

const (
	nameLabel       = "name"
	controllerLabel = "controller"
	priorityLabel   = "priority"
	resultLabel     = "result"
	bucketLabel     = "le" // which histograms need
)

// Provider is a [workqueue.MetricsProvider], and the [prometheus.Collector] of its metrics. It is made by
// [NewProvider] or [New]; its zero value is not usable. All methods are safe for concurrent use.
type Provider struct {
	families     []family[workqueue.Stats]
	poolFamilies []family[worker.Stats]
	buckets      *buckets
	queues       *totals.Set[workqueue.Stats]
	pools        *totals.Set[worker.Stats]
	joined       *joined // nil for a provider that is not made by Join

	mu struct {
		sync.Mutex // no foreign code runs under it
		pushed     map[string]*pushed
		names      map[string]*nameCache
	}
}

// nameCache keeps what the metrics of one name have in common from scrape to scrape.
type nameCache struct {
	// labels are those of all families except the split ones.
	labels []*dto.LabelPair
	// histograms are those of the last scrape, by family: most of what a scrape allocates, and of an idle queue
	// they stay as they are.
	histograms [metrics.CallDuration + 1]histogramCache
}

var (
	_ workqueue.StatsProvider = (*Provider)(nil)
	_ worker.StatsProvider    = (*Provider)(nil)
	_ prometheus.Collector    = (*Provider)(nil)
)

// NewProvider returns a provider and registers its metrics. It panics if the options are wrong, or if the
// registerer has other metrics of these names with the same constant labels.
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

func register(registerer prometheus.Registerer, p *Provider) error {
	if registerer == nil {
		return errNoRegisterer
	}
	if err := registerer.Register(p); err != nil {
		return fmt.Errorf("prom: the registerer has metrics of these names already; "+
			"use that provider, or another Namespace or other ConstLabels: %w", err)
	}
	return nil
}

var errNoRegisterer = errors.New("prom: the registerer is nil")

// New returns a provider that the caller has to register, and an error if the options are wrong.
func New(opts Options) (*Provider, error) {
	families, pools := familiesOf(metrics.Queue), familiesOf(metrics.Pool)
	if opts.ControllerRuntime {
		families, pools = controllerRuntimeFamilies(), controllerRuntimePoolFamilies()
		if opts.Buckets == nil {
			opts.Buckets = prometheus.ExponentialBuckets(10e-9, 10, 12)
		}
		if opts.NativeHistogramBucketFactor == 0 {
			opts.NativeHistogramBucketFactor = 1.1
		}
	}
	b, err := newBuckets(opts.Buckets, opts.NativeHistogramBucketFactor)
	if err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}
	p := &Provider{
		families: families, poolFamilies: pools, buckets: b, queues: metrics.Queues(), pools: metrics.Pools(),
	}
	p.mu.pushed, p.mu.names = map[string]*pushed{}, map[string]*nameCache{}
	if err := p.setDescs(opts); err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}
	return p, nil
}

func (p *Provider) setDescs(opts Options) error {
	nameLabels := []string{nameLabel}
	if opts.ControllerRuntime {
		nameLabels = append(nameLabels, controllerLabel)
	}
	for _, own := range append([]string{priorityLabel, resultLabel, bucketLabel}, nameLabels...) {
		if _, ok := opts.ConstLabels[own]; ok {
			return fmt.Errorf("the constant label %q is one that the metrics have themselves", own)
		}
	}
	for i := range p.families {
		p.families[i].setDescs(opts, nameLabels)
	}
	for i := range p.poolFamilies {
		p.poolFamilies[i].setDescs(opts, nameLabels)
	}
	return prometheus.NewRegistry().Register(p) // which checks the descriptors
}

func (f *family[S]) setDescs(opts Options, nameLabels []string) {
	if f.nameLabels == nil {
		f.nameLabels = nameLabels
	}
	labels := slices.Clone(f.nameLabels)
	if f.Label != "" {
		labels = append(labels, f.Label)
	}
	helps := []string{f.Help}
	if f.earlierHelp != "" {
		helps = append(helps, f.earlierHelp)
	}
	for _, help := range helps {
		for _, stability := range stabilities {
			f.descs = append(f.descs, prometheus.NewDesc(
				prometheus.BuildFQName(opts.Namespace, "", f.Name), stability+help, labels, maps.Clone(opts.ConstLabels)))
		}
	}
}

// HistogramBounds returns the upper bounds, in seconds, of the buckets by which a queue has to count. The caller must
// not change them.
func (p *Provider) HistogramBounds() []float64 { return p.buckets.bounds }

// WatchQueue adds a queue to the metrics of that name. Every scrape reads it until it was shut down and its last
// key is done. WatchQueue takes constant time and does not block.
func (p *Provider) WatchQueue(name string, stats func() workqueue.Stats) { p.queues.Watch(name, stats) }

// WatchPool adds a pool of package worker to the metrics of that name. Every scrape reads it until it has ended. A pool
// calls it when it runs.
func (p *Provider) WatchPool(name string, stats func() worker.Stats) { p.pools.Watch(name, stats) }

// Describe sends the descriptors of all metrics. A provider that is made by [Join] sends none: to a registry, this
// means that it may collect any metrics.
func (p *Provider) Describe(ch chan<- *prometheus.Desc) {
	if p.joined != nil {
		return
	}
	for i := range p.families {
		ch <- p.families[i].descs[0]
	}
	for i := range p.poolFamilies {
		ch <- p.poolFamilies[i].descs[0]
	}
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

// Collect reads all queues and pools and sends their metrics, which blocks until they are received. If reading one of
// them panics, so does Collect. What was not sent by then is missing from this scrape only.
func (p *Provider) Collect(ch chan<- prometheus.Metric) {
	out := &batch{to: ch}
	p.collectQueues(out)
	p.collectPools(out)
	out.flush()
}

// batch sends metrics, many in a row. The registry receives them in another goroutine: if each were sent at once, the
// two would often wait for each other, which takes a tenth of a scrape's CPU time.
type batch struct {
	to      chan<- prometheus.Metric
	waiting []prometheus.Metric
}

// batchSize is a few times what a registry's channel holds. Larger batches would leave one of the two goroutines idle.
const batchSize = 4000

func (b *batch) send(m prometheus.Metric) {
	b.waiting = append(b.waiting, m)
	if len(b.waiting) == batchSize {
		b.flush()
	}
}

func (b *batch) flush() {
	for _, m := range b.waiting {
		b.to <- m
	}
	b.waiting = b.waiting[:0]
}

func (p *Provider) collectQueues(out *batch) {
	s := newScrape(p, p.families)
	p.mu.Lock()
	pushed := maps.Clone(p.mu.pushed)
	p.mu.Unlock()
	var queues totals.Total[workqueue.Stats] // It would be allocated for every name if it were the loop's.
	for queues = range p.queues.All() {
		p.sendName(out, s, &queues, true, pushed[queues.Name])
		delete(pushed, queues.Name)
	}
	for name, own := range pushed {
		p.sendName(out, s, &totals.Total[workqueue.Stats]{Name: name}, false, own)
	}
}

// sendName sends the metrics of one name: the sum of its queues, if watched reports that there have ever been any, and
// of what was pushed, which is nil if nothing was.
func (p *Provider) sendName(out *batch, s *scrape, queues *totals.Total[workqueue.Stats], watched bool, own *pushed) {
	if own != nil {
		own.addTo(&queues.Sum, p.buckets)
	}
	name := s.nameOf(queues.Name)
	cache := p.cacheOf(name)
	exports := func(i int) bool {
		isPushed := own != nil && i < numPushed && own[i] != nil
		return s.descs[i] != nil && (isPushed || watched && p.families[i].In(&queues.Sum, queues.Live))
	}
	n := 0
	for i := range p.families {
		if exports(i) && p.families[i].Split == nil {
			n++
		}
	}
	unsplit := make([]metric, 0, n) // one piece of memory
	for i := range p.families {
		f := &p.families[i]
		switch {
		case !exports(i):
		case f.Split != nil:
			f.sendTo(out, s.descs[i], name, &queues.Sum, p.buckets)
		default:
			unsplit = append(unsplit, metric{desc: s.descs[i], labels: cache.labels})
			m := &unsplit[len(unsplit)-1]
			if f.Histogram != nil {
				m.kind = dto.MetricType_HISTOGRAM
				m.histogram = cache.histograms[i].get(f.Histogram(&queues.Sum), p.buckets)
			} else {
				f.read(m, &queues.Sum, p.buckets)
			}
			out.send(m)
		}
	}
}

func (p *Provider) collectPools(out *batch) {
	s := newScrape(p, p.poolFamilies)
	var pools totals.Total[worker.Stats]
	for pools = range p.pools.All() {
		b := p.buckets
		if h := pools.Sum.Durations; h != nil {
			b = &buckets{bounds: h.Bounds, classic: h.Bounds}
			for i := range h.Bounds {
				b.ends = append(b.ends, i)
			}
		}
		for i := range p.poolFamilies {
			f := &p.poolFamilies[i]
			if s.descs[i] != nil && f.In(&pools.Sum, pools.Live) {
				f.sendTo(out, s.descs[i], s.nameOf(pools.Name), &pools.Sum, b)
			}
		}
	}
}

func (p *Provider) cacheOf(name string) *nameCache {
	p.mu.Lock()
	defer p.mu.Unlock()
	cache := p.mu.names[name]
	if cache == nil {
		cache = &nameCache{labels: p.families[metrics.Adds].labels(name)}
		p.mu.names[name] = cache
	}
	return cache
}
