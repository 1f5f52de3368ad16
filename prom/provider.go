package prom

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/totals"
)

// Options are the options of a [Provider]. The zero Options make the metrics look like Kubernetes'.
type Options struct {
	// Namespace is put before the names of the metrics, with an underscore. It lets these metrics be in one
	// registry with others that have the same names.
	Namespace string

	// ConstLabels are labels that every metric has, in addition to name.
	ConstLabels prometheus.Labels

	// ControllerLabel adds the label controller, whose value is the queue's name too, as in
	// controller-runtime.
	ControllerLabel bool

	// Buckets are the upper bounds of the histograms' classic buckets, in seconds, ascending. Nil means
	// Kubernetes' own, powers of ten from 10 ns to 10 s. (Those of controller-runtime go on to 1,000 s:
	// prometheus.ExponentialBuckets(10e-9, 10, 12).) An empty slice that is not nil means none.
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
	bucketLabel     = "le" // which histograms need
)

// Provider is a [workqueue.MetricsProvider], and the [prometheus.Collector] of its metrics. It is made by
// [NewProvider] or [New]; its zero value is not usable. All methods are safe for concurrent use.
type Provider struct {
	families   []family[workqueue.Stats]
	queuedKeys *prometheus.Desc
	buckets    *buckets
	queues     *totals.Set[workqueue.Stats]

	mu     sync.Mutex // guards what follows; no foreign code runs under it
	pushed map[string]*pushed
	labels map[string][]*dto.LabelPair
}

var (
	_ workqueue.StatsProvider = (*Provider)(nil)
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
		return errors.New("prom: the registerer is nil")
	}
	if err := registerer.Register(p); err != nil {
		return fmt.Errorf("prom: the registerer has metrics of these names already; "+
			"use that provider, or another Namespace or other ConstLabels: %w", err)
	}
	return nil
}

// New returns a provider that the caller has to register, and an error if the options are wrong.
func New(opts Options) (*Provider, error) {
	b, err := newBuckets(opts.Buckets, opts.NativeHistogramBucketFactor)
	if err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}
	p := &Provider{
		families: slices.Clone(queueFamilies), buckets: b, queues: totals.Queues(),
		pushed: map[string]*pushed{}, labels: map[string][]*dto.LabelPair{},
	}
	if err := p.setDescs(opts); err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}
	return p, nil
}

func (p *Provider) setDescs(opts Options) error {
	labels := []string{nameLabel}
	if opts.ControllerLabel {
		labels = append(labels, controllerLabel)
	}
	for _, own := range append(labels, priorityLabel, bucketLabel) {
		if _, ok := opts.ConstLabels[own]; ok {
			return fmt.Errorf("the constant label %q is one that the metrics have themselves", own)
		}
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(opts.Namespace, "", name), help, labels, maps.Clone(opts.ConstLabels))
	}
	for i := range p.families {
		f := &p.families[i]
		f.desc = desc(f.name, f.help, labels...)
	}
	p.queuedKeys = desc(queuedKeysName, queuedKeysHelp, append(labels, priorityLabel)...)
	return prometheus.NewRegistry().Register(p) // checks the descriptors
}

// HistogramBounds returns the upper bounds of the buckets by which a queue has to count. The caller must not
// change them.
func (p *Provider) HistogramBounds() []float64 { return p.buckets.bounds }

// WatchQueue adds a queue to the metrics of that name. Every scrape reads it until it was shut down and its last
// key is done. WatchQueue takes constant time and does not block.
func (p *Provider) WatchQueue(name string, stats func() workqueue.Stats) { p.queues.Watch(name, stats) }

// Describe sends the descriptors of all metrics.
func (p *Provider) Describe(ch chan<- *prometheus.Desc) {
	for i := range p.families {
		ch <- p.families[i].desc
	}
	ch <- p.queuedKeys
}

// Collect reads all queues and sends their metrics.
func (p *Provider) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	pushed := maps.Clone(p.pushed)
	p.mu.Unlock()
	for queues := range p.queues.All() {
		p.collectName(ch, queues, pushed[queues.Name], true)
		delete(pushed, queues.Name)
	}
	for name, metrics := range pushed {
		p.collectName(ch, totals.Total[workqueue.Stats]{Name: name}, metrics, false)
	}
}

// collectName sends the metrics of one name: those of its queues, if there have ever been any, with what was pushed
// under the same name, which is nil if nothing was.
func (p *Provider) collectName(ch chan<- prometheus.Metric, queues totals.Total[workqueue.Stats], own *pushed, watched bool) {
	st, labels := &queues.Sum, p.labelsOf(queues.Name)
	if own != nil {
		own.addTo(st, p.buckets)
	}
	metrics := make([]metric, len(p.families))
	for i := range p.families {
		f, m := &p.families[i], &metrics[i]
		isPushed := own != nil && i < numPushed && own[i] != nil
		if !isPushed && !(watched && (queues.Live || f.gauge == nil)) {
			continue
		}
		m.desc, m.labels = f.desc, labels
		f.read(m, st, p.buckets)
		ch <- m
	}
	if st.ByPriority != nil {
		p.collectPriorities(ch, st.ByPriority, labels)
	}
}

// collectPriorities sends the metrics of a name whose queues have priorities.
func (p *Provider) collectPriorities(ch chan<- prometheus.Metric, depths *workqueue.PriorityDepths, labels []*dto.LabelPair) {
	send := func(priority string, queued int) {
		ch <- &metric{
			desc: p.queuedKeys, labels: withLabel(labels, priorityLabel, priority),
			kind: dto.MetricType_GAUGE, value: float64(queued),
		}
	}
	for _, d := range depths.Depths {
		send(strconv.Itoa(d.Priority), d.Queued)
	}
	send(otherPriorities, depths.Others)
}

// labelsOf returns the labels of that name's metrics, which are the same for all families.
func (p *Provider) labelsOf(name string) []*dto.LabelPair {
	p.mu.Lock()
	defer p.mu.Unlock()
	labels := p.labels[name]
	if labels == nil {
		// The second value is that of the label controller, if there is one.
		labels = prometheus.MakeLabelPairs(p.families[depth].desc, []string{name, name})
		p.labels[name] = labels
	}
	return labels
}

// withLabel returns labels and one more, sorted by name.
func withLabel(labels []*dto.LabelPair, name, value string) []*dto.LabelPair {
	all := append(slices.Clone(labels), &dto.LabelPair{Name: &name, Value: &value})
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}
