package debug

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
)

// historyLen is the number of samples that are kept.
const historyLen = 120

// history has the last samples of a queue. Counters are compared with those of the sample before, so what happens
// between two samples is in the rates, however short it was.
type history struct {
	mu sync.Mutex // guards what follows
	// points are the samples at which the queue was not idle, by their ticks.
	points []point
	// born is the tick after which the queue was first read.
	born uint32
	// last is the sample before; started and middle are older ones, for the times of the last minutes. When middle is
	// recentFor old, it becomes started.
	last, started, middle measure
}

// recentFor is the shortest time that the summaries of times cover, once the queue is that old. The longest one is
// twice that.
const recentFor = 5 * time.Minute

// measure is what a queue had counted at some time.
type measure struct {
	at                           time.Time
	adds, dones, errors, retries uint64
	queued, processing, waiting  int
	latency, work                *workqueue.Histogram
}

func (r *reading) measure() measure {
	s := r.stats
	m := measure{
		at: r.at, adds: s.Adds, retries: s.Retries, errors: r.workers.Failed,
		queued: s.Queued, processing: s.Processing, waiting: s.Waiting,
		latency: s.Latency, work: s.WorkDuration,
	}
	if s.WorkDuration != nil {
		m.dones = s.WorkDuration.Count()
	} else if open := uint64(max(0, s.Queued+s.Again+s.Processing)); open <= s.Adds {
		m.dones = s.Adds - open // Without times: what was added is done, or still there.
	}
	return m
}

// point is what happened between two samples, and what there was at the second one.
type point struct {
	tick                         uint32
	seconds                      float32
	queued, processing, waiting  uint32
	adds, dones, errors, retries uint32
	// What follows are seconds, 0 if no key was taken or done. The last two are bounds, and +Inf above the last one.
	latencyMean, workMean, latencyMost, workMost float32
}

// idle reports whether there is nothing to remember.
func (p point) idle() bool {
	p.tick, p.seconds = 0, 0
	return p == point{}
}

// pointBetween returns what happened from a to b.
func pointBetween(a, b measure) point {
	p := point{
		seconds: float32(b.at.Sub(a.at).Seconds()),
		queued:  size(b.queued), processing: size(b.processing), waiting: size(b.waiting),
		adds: more(b.adds, a.adds), dones: more(b.dones, a.dones),
		errors: more(b.errors, a.errors), retries: more(b.retries, a.retries),
	}
	p.latencyMean, p.latencyMost = meanAndMost(difference(b.latency, a.latency))
	p.workMean, p.workMost = meanAndMost(difference(b.work, a.work))
	return p
}

func size(n int) uint32 { return uint32(min(max(int64(n), 0), math.MaxUint32)) }

// more returns by how much a counter has grown. One that starts again, as that of a pool that was replaced, has
// grown from 0.
func more(now, before uint64) uint32 {
	if now < before {
		before = 0
	}
	return uint32(min(now-before, math.MaxUint32))
}

func meanAndMost(h *workqueue.Histogram) (mean, most float32) {
	r := newTimesReport(h)
	if r == nil || r.Count == 0 {
		return 0, 0
	}
	if r.Most == nil {
		return float32(r.Mean), float32(math.Inf(1))
	}
	return float32(r.Mean), float32(*r.Most)
}

// difference returns what now has counted since before, or nil without times.
func difference(now, before *workqueue.Histogram) *workqueue.Histogram {
	if now == nil || before == nil || len(now.Counts) != len(before.Counts) || len(now.Counts) != len(now.Bounds)+1 {
		return now
	}
	d := &workqueue.Histogram{Bounds: now.Bounds, Counts: make([]uint64, len(now.Counts)), Sum: now.Sum - before.Sum}
	for i := range d.Counts {
		if now.Counts[i] < before.Counts[i] {
			return now
		}
		d.Counts[i] = now.Counts[i] - before.Counts[i]
	}
	return d
}

// begin notes the first measure, at which nothing has happened yet.
func (h *history) begin(tick uint32, m measure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.born, h.last, h.started, h.middle = tick, m, m, m
}

// add notes the measure of a tick. It is the one before if the queue has not answered.
func (h *history) add(tick uint32, m measure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.at.IsZero() { // Until now the queue has never answered.
		h.born, h.last, h.started, h.middle = tick, m, m, m
		return
	}
	p := pointBetween(h.last, m)
	p.tick = tick
	h.last = m
	if m.at.Sub(h.middle.at) >= recentFor {
		h.started, h.middle = h.middle, m
	}
	old := 0
	for old < len(h.points) && tick-h.points[old].tick >= historyLen {
		old++
	}
	h.points = slices.Delete(h.points, 0, old)
	if !p.idle() || p.seconds == 0 {
		h.points = append(h.points, p)
	} else if len(h.points) == 0 {
		h.points = nil // An idle queue takes no memory.
	}
}

// timeline is a history up to now: what happened between the samples, oldest first, and last what happened since.
type timeline struct {
	points []point
	// live is the time since the last sample, in seconds.
	live float64
}

// newerLocked returns now, or the last sample if that is newer: a page that takes long may have read the queue before
// the sampler did. Counters that seem to fall would look as if they had started again.
func (h *history) newerLocked(now measure) measure {
	if now.at.Before(h.last.at) {
		return h.last
	}
	return now
}

// all returns the history up to now. If the last sample is too recent to know a rate since, its rates are taken.
func (h *history) all(tick uint32, now measure, every time.Duration) timeline {
	h.mu.Lock()
	defer h.mu.Unlock()
	now = h.newerLocked(now)
	n := min(tick-h.born, historyLen)
	points := make([]point, n, n+1)
	for i := range points {
		points[i] = point{tick: tick - n + 1 + uint32(i), seconds: float32(every.Seconds())}
	}
	for _, p := range h.points {
		if i := int64(p.tick) - int64(tick-n+1); i >= 0 && i < int64(n) {
			points[i] = p
		}
	}
	p := pointBetween(h.last, now)
	live := now.at.Sub(h.last.at)
	if n > 0 && live < every/5 {
		before := points[n-1]
		before.queued, before.processing, before.waiting = p.queued, p.processing, p.waiting
		p = before
	}
	return timeline{append(points, p), max(0, live.Seconds())}
}

// covers returns the length of the timeline in seconds.
func (t timeline) covers() float64 {
	all := t.live
	for _, p := range t.points[:len(t.points)-1] {
		all += float64(p.seconds)
	}
	return all
}

// ends returns, for each point, at which part of the timeline it ends. The last one is 1.
func (t timeline) ends() []float64 {
	ends := make([]float64, len(t.points))
	covers, at := max(t.covers(), 1e-9), 0.0
	for i, p := range t.points {
		at += float64(p.seconds)
		ends[i] = at / covers
	}
	ends[len(ends)-1] = 1
	return ends
}

// recent returns the times of the last minutes, and how long these were.
func (h *history) recent(now measure) (latency, work *workqueue.Histogram, covers time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return difference(now.latency, h.started.latency), difference(now.work, h.started.work), now.at.Sub(h.started.at)
}

// rates are numbers per second.
type rates struct {
	Adds    float64 `json:"adds_per_second"`
	Dones   float64 `json:"dones_per_second"`
	Errors  float64 `json:"errors_per_second"`
	Retries float64 `json:"retries_per_second"`
}

// rates returns the rates of the last minute.
func (h *history) rates(tick uint32, now measure, every time.Duration) rates {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := pointBetween(h.last, h.newerLocked(now))
	ticks := min(uint32(max(1, time.Minute/every)), tick-h.born)
	seconds := float64(all.seconds) + every.Seconds()*float64(ticks)
	for _, p := range h.points {
		if tick-p.tick < ticks {
			all.add(p)
			seconds += float64(p.seconds) - every.Seconds()
		}
	}
	return all.rates(seconds)
}

func (p *point) add(q point) {
	p.adds += q.adds
	p.dones += q.dones
	p.errors += q.errors
	p.retries += q.retries
}

func (p point) rates(seconds float64) rates {
	if seconds <= 0 {
		return rates{}
	}
	return rates{
		Adds: float64(p.adds) / seconds, Dones: float64(p.dones) / seconds,
		Errors: float64(p.errors) / seconds, Retries: float64(p.retries) / seconds,
	}
}
