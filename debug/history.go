package debug

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

const (
	// historyLen is the number of samples that are kept.
	historyLen = 120
	// recentFor is the shortest time that the table of times covers, once the queue is that old. The longest one
	// is twice that.
	recentFor = 5 * time.Minute
)

// history has the last samples of a queue. Counters are compared with those of the sample before, so what
// happens between two samples is in the rates, however short it was.
type history struct {
	mu struct {
		sync.Mutex
		samples []sample // oldest first
		// started and middle are older times, for those of the last minutes. When middle is recentFor old, it
		// becomes started: at 12 minutes started is that of 5 minutes, and middle that of 10.
		started, middle times
	}
}

// measure is what a queue had counted at some time.
type measure struct {
	sample
	times times
}

type sample struct {
	at                              time.Time
	adds, dones, errors, retries    uint64
	queued, inWork, onHold, waiting int
	latency, work                   total
}

// times are histograms of how long keys were in the line, in work and on hold, of the delays that failed keys
// got, and of how long changes took. Those that are not known are nil.
type times struct {
	at                                  time.Time
	latency, work, hold, delays, change *workqueue.Histogram
}

// total is a number of times and their sum, in seconds.
type total struct {
	count uint64
	sum   float64
}

func totalOf(h *workqueue.Histogram) (t total) {
	if h != nil {
		t = total{h.Count(), h.Sum}
	}
	return t
}

func (r *reading) measure() (m measure) {
	s, w := r.stats, r.workers
	m.times = times{r.at, s.Latency, s.WorkDuration, w.HoldDurations, w.RetryDelays, w.Changes}
	m.sample = sample{
		at: r.at, adds: s.Adds, retries: s.Retries, errors: w.Failed, queued: s.Queued, inWork: r.inWork(),
		onHold: s.OnHold, waiting: s.Waiting, latency: totalOf(m.times.latency), work: totalOf(m.times.work),
	}
	if s.WorkDuration != nil {
		m.dones = s.WorkDuration.Count()
	} else if open := uint64(max(0, s.Queued+s.Again+s.Processing)); s.Shared == nil && open <= s.Adds {
		// Without times: what was added is done, or still there. (A shared queue counts its own adds alone.)
		m.dones = s.Adds - open
	}
	return m
}

// point is what there was at a time, and what had happened since the point before, per second. The means are
// seconds, 0 if no key was taken or done.
type point struct {
	at                              time.Time
	Queued, InWork, OnHold, Waiting float64
	rates
	Latency, Work float64
}

// pointBetween returns what happened from a to b, and what there was at b.
func pointBetween(a, b sample) point {
	seconds := b.at.Sub(a.at).Seconds()
	perSecond := func(before, now uint64) float64 {
		if seconds <= 0 || now < before { // A sum that falls lacks a pool that has ended: what is left is not new.
			return 0
		}
		return float64(now-before) / seconds
	}
	mean := func(before, now total) float64 {
		if now.count <= before.count {
			return 0
		}
		return max(0, now.sum-before.sum) / float64(now.count-before.count)
	}
	return point{
		at: b.at, Queued: float64(b.queued), InWork: float64(b.inWork), OnHold: float64(b.onHold),
		Waiting: float64(b.waiting), Latency: mean(a.latency, b.latency), Work: mean(a.work, b.work),
		rates: rates{perSecond(a.adds, b.adds), perSecond(a.dones, b.dones),
			perSecond(a.errors, b.errors), perSecond(a.retries, b.retries)},
	}
}

// begin notes the first look at a queue, at which nothing has happened yet. It ignores later ones.
func (h *history) begin(m measure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.samples) == 0 {
		h.mu.samples, h.mu.started, h.mu.middle = []sample{m.sample}, m.times, m.times
	}
}

// add adds a sample.
func (h *history) add(m measure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.samples = append(h.mu.samples[max(0, len(h.mu.samples)-historyLen):], m.sample)
	if m.at.Sub(h.mu.middle.at) >= recentFor {
		h.mu.started, h.mu.middle = h.mu.middle, m.times
	}
}

// timeline is a history: what happened between samples, oldest first. The first one was taken at from.
type timeline struct {
	points []point
	from   time.Time
}

// timeline returns the queue's history up to now. If the last sample is too recent to know a rate since, its
// rates are taken.
func (r *reading) timeline(every time.Duration) (t timeline) {
	h, now := &r.entry.history, r.measure()
	h.mu.Lock()
	defer h.mu.Unlock()
	samples := h.mu.samples
	for i := 1; i < len(samples); i++ {
		t.points = append(t.points, pointBetween(samples[i-1], samples[i]))
	}
	last := samples[len(samples)-1]
	live := pointBetween(last, now.sample)
	if n := len(t.points); n > 0 && now.at.Sub(last.at) < every/5 {
		before := t.points[n-1]
		live.rates, live.Latency, live.Work = before.rates, before.Latency, before.Work
		live.at = slices.MaxFunc([]time.Time{live.at, before.at}, time.Time.Compare)
	}
	t.points, t.from = append(t.points, live), samples[0].at
	return t
}

// rates returns the rates of the last minute.
func (h *history) rates(now measure) rates {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := h.mu.samples[0]
	for _, s := range slices.Backward(h.mu.samples) {
		if now.at.Sub(s.at) >= time.Minute {
			since = s
			break
		}
	}
	return pointBetween(since, now.sample).rates
}

// recent returns the times of the last minutes.
func (h *history) recent(now measure) recentReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := h.mu.started
	return recentReport{
		Covers:  seconds(now.at.Sub(since.at)),
		Latency: newTimesReport(difference(now.times.latency, since.latency)),
		Work:    newTimesReport(difference(now.times.work, since.work)),
		Hold:    newTimesReport(difference(now.times.hold, since.hold)),
		Delays:  newTimesReport(difference(now.times.delays, since.delays)),
		Change:  newTimesReport(difference(now.times.change, since.change)),
	}
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
		for _, r := range h.readAll() {
			r.entry.history.add(r.measure())
		}
	}
}
