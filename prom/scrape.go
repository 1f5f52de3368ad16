package prom

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/metrics"
	"github.com/keyedqueue/workqueue/worker"
)

// Collect reads all queues and pools and sends their metrics, which blocks until they are received. If
// reading one of them panics, this scrape fails with an error that has the stack, and lacks the metrics that
// come after it.
func (p *Provider) Collect(ch chan<- prometheus.Metric) {
	var pools []metrics.Total[worker.Stats] // Read first: they know which keys are on hold.
	p.guarded(ch, func() { pools = slices.Collect(p.pools.All()) })
	p.guarded(ch, func() { p.collectQueues(ch, metrics.ByQueue(pools)) })
	p.guarded(ch, func() { p.sendPools(ch, pools) })
}

// guarded calls collect. It turns a panic into an error of the scrape: a registry calls Collect on goroutines
// of its own, where client_golang before 1.24 does not recover, so that the program would end.
func (p *Provider) guarded(ch chan<- prometheus.Metric, collect func()) {
	defer func() {
		if v := recover(); v != nil {
			err := fmt.Errorf("prom: reading queues or pools panicked: %v\n%s", v, debug.Stack())
			ch <- prometheus.NewInvalidMetric(p.families[metrics.Depth].descs[0], err)
		}
	}()
	collect()
}

// collectQueues sends the metrics of all queues, whose pools have these numbers.
func (p *Provider) collectQueues(ch chan<- prometheus.Metric, pools map[string]worker.Stats) {
	s := newScrape(p, p.families)
	p.mu.Lock()
	pushed := maps.Clone(p.mu.pushed)
	p.mu.Unlock()
	var queues metrics.Total[workqueue.Stats] // It would be allocated for every name if it were the loop's.
	for queues = range p.queues.All() {
		metrics.LeaveOutHolds(&queues.Sum, pools[queues.Name])
		p.sendName(ch, s, &queues, true, pushed[queues.Name])
		delete(pushed, queues.Name)
	}
	for name, pushes := range pushed {
		p.sendName(ch, s, &metrics.Total[workqueue.Stats]{Name: name}, false, pushes)
	}
}

func (p *Provider) sendPools(ch chan<- prometheus.Metric, pools []metrics.Total[worker.Stats]) {
	s := newScrape(p, p.poolFamilies)
	for j := range pools {
		t := &pools[j]
		name := s.nameOf(t.Name)
		if metrics.ChangesAlone(&t.Sum) {
			// Others export counts of calls under this name, and this pool has none, so no metric comes twice.
			name = t.Name
		}
		for i := range p.poolFamilies {
			f := &p.poolFamilies[i]
			if s.descs[i] != nil && f.In(&t.Sum, t.Live) {
				f.sendTo(ch, s.descs[i], name, &t.Sum, p.poolBuckets)
			}
		}
	}
}

// sendName sends the metrics of one name: the sum of its queues, if there have ever been any, and of what
// was pushed, which is nil if nothing was.
func (p *Provider) sendName(ch chan<- prometheus.Metric, s *scrape, queues *metrics.Total[workqueue.Stats], hasQueues bool, pushes *pushed) {
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
		has := isPushed || hasQueues && f.In(&queues.Sum, queues.Live)
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
	// labels are those of all families except the split ones.
	labels []*dto.LabelPair
	// histograms are those of the last scrape, by family: most of what a scrape allocates, and of an idle queue
	// they stay as they are.
	histograms [metrics.NumQueue]atomic.Pointer[cachedHistogram]
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

// family is a metric as this provider has it.
type family[S any] struct {
	metrics.Metric[S]
	// nameLabels are the labels whose value is the name of the queue or pool. Nil means those of the provider.
	nameLabels []string
	// earlierHelp is the help that earlier versions of the others have, or empty. It is for [Join].
	earlierHelp string
	// descs are set by the provider. They have the same labels and different help. All but the first are for
	// [Join].
	descs []*prometheus.Desc
}

func familiesOf[S any](table []metrics.Metric[S]) []family[S] {
	families := make([]family[S], len(table))
	for i, m := range table {
		families[i].Metric = m
	}
	return families
}

// controllerRuntimeFamilies returns the metrics of queues as controller-runtime has them, in
// pkg/internal/metrics.
func controllerRuntimeFamilies() []family[workqueue.Stats] {
	f := familiesOf(metrics.Queue[:metrics.QueuedKeys]) // The values of QueuedKeys are those of Depth here.
	f[metrics.Depth].Metric = metrics.Metric[workqueue.Stats]{
		Name: f[metrics.Depth].Name, Help: "Current depth of workqueue by workqueue and priority",
		Gauge: true, Split: depthByPriority, Label: priorityLabel,
	}
	f[metrics.QueueDuration].Help = "How long in seconds an item stays in workqueue before being requested"
	f[metrics.UnfinishedWork].Help = "How many seconds of work has been done that is in progress and hasn't " +
		"been observed by work_duration. Large values indicate stuck threads. One can deduce the number of " +
		"stuck threads by observing the rate at which this increases."
	f[metrics.Retries].Help = "Total number of items added to the workqueue with a non-zero delay " +
		"(rate-limited requeues, explicit RequeueAfter or AddAfter calls)"
	// up to controller-runtime 0.24
	f[metrics.Retries].earlierHelp = "Total number of retries handled by workqueue"
	return f
}

// depthByPriority returns the values of controller-runtime's workqueue_depth.
func depthByPriority(st *workqueue.Stats) []metrics.Labelled {
	if st.ByPriority == nil {
		return []metrics.Labelled{{Label: "", Value: float64(st.Queued + st.Again)}}
	}
	values := metrics.ByPriority(st.ByPriority)
	if len(values) == metrics.MaxPriorities {
		values = append(values, metrics.Labelled{Label: "exceeded_cardinality_limit",
			Value: float64(st.ByPriority.Others)})
	}
	without := st.Queued + st.Again - st.ByPriority.Others // Other queues of the name may have no priorities.
	for _, d := range st.ByPriority.Depths {
		without -= d.Queued
	}
	if without > 0 {
		values = append(values, metrics.Labelled{Label: "", Value: float64(without)})
	}
	return values
}

// controllerRuntimePoolFamilies returns the metrics of pools, with the names of controller-runtime for those
// that it has, in pkg/internal/controller/metrics.
func controllerRuntimePoolFamilies() []family[worker.Stats] {
	f := familiesOf(metrics.Pool)
	for i, own := range []struct{ name, help string }{
		metrics.PoolResults: {"reconcile_total", "Total number of reconciliations per controller"},
		metrics.PoolErrors:  {"reconcile_errors_total", "Total number of reconciliation errors per controller"},
		metrics.PoolGivenUp: {"terminal_reconcile_errors_total",
			"Total number of terminal reconciliation errors per controller"},
		metrics.PoolPanics: {"reconcile_panics_total", "Total number of reconciliation panics per controller"},
		metrics.PoolTimeouts: {"reconcile_timeouts_total",
			"Total number of reconciliation timeouts per controller"},
		metrics.PoolDuration: {"reconcile_time_seconds", "Length of time per reconciliation per controller"},
		metrics.WantedWorkers: {"max_concurrent_reconciles",
			"Maximum number of concurrent reconciles per controller"},
		metrics.BusyWorkers: {"active_workers", "Number of currently used workers per controller"},
	} {
		f[i].Name, f[i].Help = "controller_runtime_"+own.name, own.help
		f[i].nameLabels = []string{controllerLabel}
	}
	f[metrics.PoolResults].Split = controllerRuntimeResults
	return f
}

// controllerRuntimeResults returns the values of controller_runtime_reconcile_total.
func controllerRuntimeResults(st *worker.Stats) []metrics.Labelled {
	return []metrics.Labelled{
		{Label: "success", Value: float64(st.Handled - st.Failed - st.Requeued - st.Interrupted - st.Holds)},
		{Label: "requeue", Value: float64(st.Requeued - st.RequeuedAfter + st.Interrupted + st.Holds)},
		{Label: "requeue_after", Value: float64(st.RequeuedAfter)},
		{Label: "error", Value: float64(st.Failed)},
	}
}

// sendTo reads the family's values from numbers and sends them, under the descriptor desc, which is one of
// f.descs.
func (f *family[S]) sendTo(ch chan<- prometheus.Metric, desc *prometheus.Desc, name string, numbers *S, b *buckets) {
	switch {
	case f.Value != nil:
		ch <- &metric{desc: desc, labels: f.labels(name), gauge: f.Gauge, value: f.Value(numbers)}
	case f.Histogram != nil:
		ch <- &metric{desc: desc, labels: f.labels(name), histogram: b.histogram(f.Histogram(numbers))}
	default:
		for _, v := range f.Split(numbers) {
			ch <- &metric{desc: desc, labels: f.labels(name, v.Label), gauge: f.Gauge, value: v.Value}
		}
	}
}

// labels returns the labels of a metric, sorted: those with the name, and the Label of the family, if it has
// one.
func (f *family[S]) labels(name string, split ...string) []*dto.LabelPair {
	return prometheus.MakeLabelPairs(f.descs[0],
		append(slices.Repeat([]string{name}, len(f.nameLabels)), split...))
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
