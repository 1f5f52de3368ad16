package prom

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/keyedqueue/workqueue"
)

// pushed are the metrics of one name whose callers tell them of every change.
type pushed struct {
	depth, unfinished, longestRunning gaugeSet
	// The others are shared by all callers, and nil until the first.
	adds, retries         *counter
	latency, workDuration *observations
}

// addTo adds what the callers have told to v, and returns the families that they made.
func (p *pushed) addTo(v *values) (present familySet) {
	p.depth.addTo(v, depth, &present)
	p.unfinished.addTo(v, unfinished, &present)
	p.longestRunning.addTo(v, longestRunning, &present)
	p.adds.addTo(v, adds, &present)
	p.retries.addTo(v, retries, &present)
	p.latency.addTo(&v.latency, latency, &present)
	p.workDuration.addTo(&v.workDuration, workDuration, &present)
	return present
}

// counter is a number that goes up.
type counter struct{ n atomic.Uint64 }

func (c *counter) Inc() { c.n.Add(1) }

func (c *counter) addTo(v *values, f family, present *familySet) {
	if c != nil {
		v.add(f, float64(c.n.Load()))
		*present |= 1 << f
	}
}

// gauge is one caller's number.
type gauge struct {
	bits atomic.Uint64
	// The allocator packs several objects of up to 16 bytes into one, so that one of them would keep
	// the others alive.
	_ [16]byte
}

func (g *gauge) value() float64 { return math.Float64frombits(g.bits.Load()) }

func (g *gauge) Set(v float64) { g.bits.Store(math.Float64bits(v)) }
func (g *gauge) Inc()          { g.add(1) }
func (g *gauge) Dec()          { g.add(-1) }

func (g *gauge) add(d float64) {
	for {
		old := g.bits.Load()
		if g.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+d)) {
			return
		}
	}
}

// gaugeSet are the gauges of one family and name. Each caller has its own, because what two of them set
// must not overwrite each other. Callers do not say when they have no more use for one; the collector does.
type gaugeSet struct{ members []weak.Pointer[gauge] }

func (s *gaugeSet) add() *gauge {
	if len(s.members) == cap(s.members) {
		s.forgetDead()
		s.members = slices.Grow(s.members, len(s.members)+1)
	}
	g := &gauge{}
	s.members = append(s.members, weak.Make(g))
	return g
}

func (s *gaugeSet) forgetDead() {
	s.members = slices.DeleteFunc(s.members, func(m weak.Pointer[gauge]) bool { return m.Value() == nil })
}

func (s *gaugeSet) addTo(v *values, f family, present *familySet) {
	s.forgetDead()
	for _, m := range s.members {
		if g := m.Value(); g != nil {
			v.add(f, g.value())
			*present |= 1 << f
		}
	}
}

// observations is a histogram that is told of single times.
type observations struct {
	buckets *buckets
	mu      sync.Mutex // guards what follows
	counts  []uint64
	sum     float64
}

// Observe counts a number of seconds. It ignores NaN.
func (o *observations) Observe(seconds float64) {
	if math.IsNaN(seconds) {
		return
	}
	i, _ := slices.BinarySearch(o.buckets.bounds, seconds)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[i]++
	o.sum += seconds
}

func (o *observations) addTo(h *histogram, f family, present *familySet) {
	if o == nil {
		return
	}
	*present |= 1 << f
	o.mu.Lock()
	defer o.mu.Unlock()
	h.add(slices.Clone(o.counts), o.sum)
}

// NewDepthMetric returns a gauge that is one summand of workqueue_depth of that name, for as long as the
// caller keeps it.
func (p *Provider) NewDepthMetric(name string) workqueue.GaugeMetric {
	return p.newGauge(name, func(m *pushed) *gaugeSet { return &m.depth })
}

// NewUnfinishedWorkSecondsMetric returns a gauge that is one summand of workqueue_unfinished_work_seconds
// of that name, for as long as the caller keeps it.
func (p *Provider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.newGauge(name, func(m *pushed) *gaugeSet { return &m.unfinished })
}

// NewLongestRunningProcessorSecondsMetric returns a gauge. The greatest of a name is
// workqueue_longest_running_processor_seconds, for as long as the caller keeps it.
func (p *Provider) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.newGauge(name, func(m *pushed) *gaugeSet { return &m.longestRunning })
}

// NewAddsMetric returns the counter that all callers add to workqueue_adds_total of that name with.
func (p *Provider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.newCounter(name, func(m *pushed) **counter { return &m.adds })
}

// NewRetriesMetric returns the counter that all callers add to workqueue_retries_total of that name with.
func (p *Provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.newCounter(name, func(m *pushed) **counter { return &m.retries })
}

// NewLatencyMetric returns what all callers add to workqueue_queue_duration_seconds of that name with. It
// ignores NaN.
func (p *Provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.newObservations(name, func(m *pushed) **observations { return &m.latency })
}

// NewWorkDurationMetric returns what all callers add to workqueue_work_duration_seconds of that name with.
// It ignores NaN.
func (p *Provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.newObservations(name, func(m *pushed) **observations { return &m.workDuration })
}

func (p *Provider) newGauge(name string, of func(*pushed) *gaugeSet) *gauge {
	s := p.seriesOf(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return of(&s.pushed).add()
}

func (p *Provider) newCounter(name string, of func(*pushed) **counter) *counter {
	s := p.seriesOf(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := of(&s.pushed)
	if *c == nil {
		*c = &counter{}
	}
	return *c
}

func (p *Provider) newObservations(name string, of func(*pushed) **observations) *observations {
	s := p.seriesOf(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := of(&s.pushed)
	if *o == nil {
		*o = &observations{buckets: s.buckets, counts: s.buckets.zeros()}
	}
	return *o
}
