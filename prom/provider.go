package prom

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/metrics"
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
	// value is also the name; workqueue_depth has the label priority, which is empty for a queue without
	// priorities; those of pools have names like controller_runtime_reconcile_total; the help is
	// controller-runtime's, and so are the defaults of the two fields below: powers of ten to 1,000 s, for pools
	// the 40 buckets of controller_runtime_reconcile_time_seconds, and a factor of 1.1.
	ControllerRuntime bool

	// Buckets are the upper bounds of the histograms' classic buckets, in seconds, ascending. Nil means
	// Kubernetes' own, powers of ten from 10 ns to 10 s, and for the handlers of pools 21 bounds from 10 µs to
	// half an hour. An empty slice that is not nil means none.
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
// [NewProvider] or [Join]; its zero value is not usable. All methods are safe for concurrent use. Its
// New…Metric methods, to whose metrics other packages' queues push, are those of [Adapter].
type Provider struct {
	pusher // has the methods to which other packages' queues push

	families     []family[workqueue.Stats]
	poolFamilies []family[worker.Stats]
	buckets      *buckets
	poolBuckets  *buckets
	queues       *metrics.Set[workqueue.Stats]
	pools        *metrics.Set[worker.Stats]
	joined       *joined // nil for a provider that is not made by Join

	mu struct {
		sync.Mutex // guards these. Under it only client_golang's constructors are called.
		pushed     map[string]*pushed
		names      map[string]*nameCache
	}
}

var (
	_ workqueue.StatsProvider  = (*Provider)(nil)
	_ worker.InspectorProvider = (*Provider)(nil)
	_ prometheus.Collector     = (*Provider)(nil)
)

// NewProvider returns a provider, and registers it unless registerer is nil. It panics if the options are
// wrong, or if the registerer has other metrics of these names with the same constant labels.
func NewProvider(registerer prometheus.Registerer, opts Options) *Provider {
	p, err := newProvider(opts)
	if err != nil {
		panic(err)
	}
	if registerer == nil {
		return p
	}
	if err := registerer.Register(p); err != nil {
		panic(fmt.Errorf("prom: the registerer has metrics of these names already; "+
			"use that provider, Join, or another Namespace or other ConstLabels: %w", err))
	}
	return p
}

// newProvider returns a provider that is not registered.
func newProvider(opts Options) (*Provider, error) {
	families, pools := familiesOf(metrics.QueueMetrics()), familiesOf(metrics.PoolMetrics())
	buckets, poolBuckets := kubernetesBuckets, observe.HandlerBounds
	if opts.ControllerRuntime {
		families, pools = controllerRuntimeFamilies(), controllerRuntimePoolFamilies()
		buckets, poolBuckets = controllerRuntimeBuckets, controllerRuntimePoolBuckets
		opts.NativeHistogramBucketFactor = cmp.Or(opts.NativeHistogramBucketFactor, 1.1)
	}
	if opts.Buckets != nil {
		buckets, poolBuckets = opts.Buckets, opts.Buckets
	}
	p := &Provider{families: families, poolFamilies: pools,
		queues: metrics.NewQueueSet(), pools: metrics.NewPoolSet()}
	var err, poolErr error
	p.buckets, err = newBuckets(buckets, opts.NativeHistogramBucketFactor)
	p.poolBuckets, poolErr = newBuckets(poolBuckets, opts.NativeHistogramBucketFactor)
	if err := cmp.Or(err, poolErr); err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}
	p.pusher = pusher{p}
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
			return fmt.Errorf("the constant label %q is a label of the metrics themselves", own)
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

// HistogramBounds returns the upper bounds, in seconds, of the buckets by which a queue has to count. The
// caller must not change them.
func (p *Provider) HistogramBounds() []float64 { return p.buckets.bounds }

// PoolHistogramBounds returns the upper bounds, in seconds, of the buckets by which a pool has to count. The
// caller must not change them.
func (p *Provider) PoolHistogramBounds() []float64 { return p.poolBuckets.bounds }

// WatchQueue adds a queue to the metrics of that name. Every scrape reads it until it was shut down and its
// last key is done. WatchQueue takes constant time and does not block.
func (p *Provider) WatchQueue(name string, stats func() workqueue.Stats) { p.queues.Watch(name, stats) }

// InspectPool adds a pool of package worker to the metrics of that name. Every scrape reads it until it has
// ended. A pool calls it when it runs.
func (p *Provider) InspectPool(name string, i worker.Inspector) { p.pools.Watch(name, i.Stats) }

// Describe sends the descriptors of all metrics. A provider that is made by [Join] sends none: to a registry,
// this means that it may collect any metrics.
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
