package debug

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

const (
	// historyLen is the number of samples that are kept.
	historyLen = 120
	// recentFor is the shortest time that the summaries of times cover, once the queue is that old. The longest
	// one is twice that.
	recentFor = 5 * time.Minute
)

// history has the last samples of a queue. Counters are compared with those of the sample before, so what
// happens between two samples is in the rates, however short it was.
type history struct {
	mu struct {
		sync.Mutex
		// points are what happened between the samples, oldest first. They stand for kept samples in all.
		points []point
		kept   int
		// last is the last sample; started and middle are older ones, for the times of the last minutes. When
		// middle is recentFor old, it becomes started: at 12 minutes started is that of 5 minutes, and middle that
		// of 10.
		last, started, middle measure
	}
}

// measure is what a queue had counted at some time.
type measure struct {
	at                            time.Time
	adds, dones, errors, retries  uint64
	queued, inWork, held, waiting int
	latency, work, changes        *workqueue.Histogram
}

func (r *reading) measure() measure {
	s := r.stats
	m := measure{
		at: r.at, adds: s.Adds, retries: s.Retries, errors: r.workers.Failed,
		queued: s.Queued, inWork: r.inWork(), held: s.Held, waiting: s.Waiting,
		latency: s.Latency, work: s.WorkDuration, changes: r.workers.Changes,
	}
	if s.WorkDuration != nil {
		m.dones = s.WorkDuration.Count()
	} else if open := uint64(max(0, s.Queued+s.Again+s.Processing)); s.Shared == nil && open <= s.Adds {
		// Without times: what was added is done, or still there. (A shared queue counts its own adds alone.)
		m.dones = s.Adds - open
	}
	return m
}

// point is what happened between two samples, and what there was at the second one.
type point struct {
	// samples is 1, or more in a queue that was idle for so many.
	samples                       uint32
	seconds                       float32
	queued, inWork, held, waiting uint32
	adds, dones, errors, retries  uint32
	// The means are seconds, 0 if no key was taken or done.
	latencyMean, workMean float32
}

// idle reports whether the queue was empty and nothing happened.
func (p point) idle() bool {
	p.samples, p.seconds = 0, 0
	return p == point{}
}

// pointBetween returns what happened from a to b, without times: the rates of a thousand queues need none.
func pointBetween(a, b measure) point {
	size := func(n int) uint32 { return uint32(min(max(int64(n), 0), math.MaxUint32)) }
	return point{
		samples: 1, seconds: float32(b.at.Sub(a.at).Seconds()),
		queued: size(b.queued), inWork: size(b.inWork), held: size(b.held), waiting: size(b.waiting),
		adds: growth(a.adds, b.adds), dones: growth(a.dones, b.dones),
		// A sum that falls lacks a pool that has ended: what is left is not new.
		errors:  growth(min(a.errors, b.errors), b.errors),
		retries: growth(a.retries, b.retries),
	}
}

// withTimes returns p, which is what happened from a to b, with the times of its keys.
func (p point) withTimes(a, b measure) point {
	p.latencyMean = meanOf(difference(b.latency, a.latency))
	p.workMean = meanOf(difference(b.work, a.work))
	return p
}

// growth returns by how much a counter has grown. One that starts again has grown from 0 (for errors see
// pointBetween).
func growth(before, now uint64) uint32 {
	if now < before {
		before = 0
	}
	return uint32(min(now-before, math.MaxUint32))
}

func meanOf(h *workqueue.Histogram) float32 {
	if h == nil || h.Count() == 0 {
		return 0
	}
	return float32(h.Sum / float64(h.Count()))
}

// difference returns what now has counted since before, or nil without times.
func difference(now, before *workqueue.Histogram) *workqueue.Histogram {
	if now == nil || before == nil || len(now.Counts) != len(before.Counts) ||
		len(now.Counts) != len(now.Bounds)+1 {
		return now
	}
	d := &workqueue.Histogram{Bounds: now.Bounds, Sum: now.Sum - before.Sum}
	d.Counts = make([]uint64, len(now.Counts))
	for i := range d.Counts {
		if now.Counts[i] < before.Counts[i] {
			return now
		}
		d.Counts[i] = now.Counts[i] - before.Counts[i]
	}
	return d
}

// begin notes the first answer of a queue, at which nothing has happened yet. It ignores later ones.
func (h *history) begin(m measure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.last.at.IsZero() {
		h.mu.last, h.mu.started, h.mu.middle = m, m, m
	}
}

// add adds a sample, unless the queue has not answered since the one before. The next answer's sample is for
// the whole gap.
func (h *history) add(m measure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !m.at.After(h.mu.last.at) {
		return
	}
	p := pointBetween(h.mu.last, m).withTimes(h.mu.last, m)
	h.mu.last = m
	if m.at.Sub(h.mu.middle.at) >= recentFor {
		h.mu.started, h.mu.middle = h.mu.middle, m
	}
	if h.mu.kept++; h.mu.kept > historyLen {
		h.mu.kept = historyLen
		h.dropFirstLocked()
	}
	if n := len(h.mu.points); n > 0 && p.idle() && h.mu.points[n-1].idle() {
		h.mu.points[n-1].samples++
		h.mu.points[n-1].seconds += p.seconds
	} else {
		h.mu.points = append(h.mu.points, p)
	}
}

// dropFirstLocked forgets the oldest sample.
func (h *history) dropFirstLocked() {
	if first := &h.mu.points[0]; first.samples > 1 {
		first.seconds -= first.seconds / float32(first.samples)
		first.samples--
		return
	}
	h.mu.points = slices.Delete(h.mu.points, 0, 1)
	if len(h.mu.points) == 1 { // An idle queue takes no more memory than that.
		h.mu.points = slices.Clone(h.mu.points)
	}
}

// timeline is a history up to now.
type timeline struct {
	// points are what happened between the samples, oldest first, and last what happened since. The last ends
	// are at 1, and the others at the part of the whole time that had passed then.
	points []point
	ends   []float64
	covers time.Duration
}

// timeline returns the history up to now. If the last sample is too recent to know a rate since, its rates
// are taken.
func (h *history) timeline(now measure, every time.Duration) (t timeline) {
	h.mu.Lock()
	defer h.mu.Unlock()
	live := now.at.Sub(h.mu.last.at) // negative if the sampler has read the queue after this page did
	covers, passed := max(0, live.Seconds()), 0.0
	for _, p := range h.mu.points {
		covers += float64(p.seconds)
	}
	for _, p := range h.mu.points {
		p.seconds /= float32(p.samples)
		for range p.samples {
			passed += float64(p.seconds)
			t.points, t.ends = append(t.points, p), append(t.ends, passed/max(covers, 1e-9))
		}
	}
	p := pointBetween(h.mu.last, now).withTimes(h.mu.last, now)
	if n := len(t.points); n > 0 && live < every/5 {
		before := t.points[n-1]
		before.queued, before.inWork, before.held, before.waiting = p.queued, p.inWork, p.held, p.waiting
		p = before
	}
	t.points, t.ends = append(t.points, p), append(t.ends, 1)
	t.covers = time.Duration(covers * float64(time.Second))
	return t
}

// recent returns the times of the last minutes.
func (h *history) recent(now measure) *recentReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := h.mu.started
	return &recentReport{
		seconds(now.at.Sub(since.at)), newTimesReport(difference(now.latency, since.latency)),
		newTimesReport(difference(now.work, since.work)), newTimesReport(difference(now.changes, since.changes)),
	}
}

// rates are numbers per second.
type rates struct {
	Adds    float64 `json:"adds_per_second"`
	Dones   float64 `json:"dones_per_second"`
	Errors  float64 `json:"errors_per_second"`
	Retries float64 `json:"retries_per_second"`
}

func (p point) rates() rates {
	per := func(n uint32) float64 {
		if p.seconds <= 0 {
			return 0
		}
		return float64(n) / float64(p.seconds)
	}
	return rates{per(p.adds), per(p.dones), per(p.errors), per(p.retries)}
}

// rates returns the rates of the last minute.
func (h *history) rates(now measure) rates {
	h.mu.Lock()
	defer h.mu.Unlock()
	const minute = 60
	sum := pointBetween(h.mu.last, now)
	for _, p := range slices.Backward(h.mu.points) {
		if sum.seconds >= minute {
			break
		}
		if p.idle() {
			p.seconds = min(p.seconds, minute-sum.seconds) // It may be longer.
		}
		sum.seconds += p.seconds
		sum.adds += p.adds
		sum.dones += p.dones
		sum.errors += p.errors
		sum.retries += p.retries
	}
	return sum.rates()
}

// sample reads the numbers of all queues at every tick until ctx ends. The first tick counts from last.
func (h *Handler) sample(ctx context.Context, ticker clock.Ticker, last time.Time) {
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		// After a tick that was late the next one is early. Few events in a short time would look like a high rate.
		now := h.clock.Now()
		if now.Sub(last) < h.every/2 {
			continue
		}
		last = now
		for _, r := range h.readAll(ctx) {
			r.entry.history.add(r.measure())
		}
	}
}

// recentReport is about the last minutes.
type recentReport struct {
	Covers  seconds      `json:"covers_seconds"`
	Latency *timesReport `json:"latency"`
	Work    *timesReport `json:"work"`
	Changes *timesReport `json:"changes,omitempty"`
}

// timesReport sums up a histogram.
type timesReport struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_seconds"`
	// Half, Ninety and Most are nil if they are above all bounds.
	Half   *float64 `json:"p50_at_most_seconds,omitempty"`
	Ninety *float64 `json:"p90_at_most_seconds,omitempty"`
	Most   *float64 `json:"p99_at_most_seconds,omitempty"`
	// last is the greatest bound, in seconds.
	last float64
}

func (r *timesReport) isEmpty() bool { return r == nil || r.Count == 0 }

func (r *timesReport) most() *float64 {
	if r == nil {
		return nil
	}
	return r.Most
}

// MeanText returns the mean for display.
func (r *timesReport) MeanText() string {
	if r.isEmpty() {
		return "–"
	}
	return precise(r.Mean)
}

// Text returns one of the bounds for display: those that are missing are above the greatest one.
func (r *timesReport) Text(bound *float64) string {
	if r.isEmpty() {
		return "–"
	}
	if bound == nil {
		return "> " + precise(r.last)
	}
	return "≤ " + precise(*bound)
}

func newTimesReport(h *workqueue.Histogram) *timesReport {
	if h == nil {
		return nil
	}
	r := &timesReport{Count: h.Count()}
	if n := len(h.Bounds); n > 0 {
		r.last = h.Bounds[n-1]
	}
	if r.Count > 0 {
		r.Mean = h.Sum / float64(r.Count)
		r.Half = atMost(h, r.Count, 0.5)
		r.Ninety = atMost(h, r.Count, 0.9)
		r.Most = atMost(h, r.Count, 0.99)
	}
	return r
}

// atMost returns the bound that a part of count times does not exceed, or nil without such a bound.
func atMost(h *workqueue.Histogram, count uint64, part float64) *float64 {
	want := uint64(math.Ceil(float64(count) * part))
	seen := uint64(0)
	for i, bound := range h.Bounds {
		if seen += h.Counts[i]; seen >= want {
			return &bound
		}
	}
	return nil
}
