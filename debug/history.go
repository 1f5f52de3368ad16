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
	historyLen = 121
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

// sample is what a queue had counted at some time. Latency and work are a number of times and their sum.
type sample struct {
	at                              time.Time
	adds, dones, errors             uint64
	queued, inWork, onHold, waiting int
	latency, work                   [2]float64
}

// times are histograms of how long keys were in the line, in work and on hold, of the delays that failed keys
// got, and of how long changes took. Those that are not known are nil.
type times struct {
	at  time.Time
	all [5]*workqueue.Histogram
}

// timesNames are what a page calls them.
var timesNames = [5]string{"In the line", "In work", "On hold", "Until a retry", "A change"}

func (r *reading) times() times {
	s, w := r.Stats, r.Workers
	return times{at: r.At, all: [5]*workqueue.Histogram{
		s.Latency, s.WorkDuration, w.HoldDurations, w.RetryDelays, w.Changes,
	}}
}

func (r *reading) sample() sample {
	s := r.Stats
	sum := func(h *workqueue.Histogram) (total [2]float64) {
		if h != nil {
			total = [2]float64{float64(h.Count()), h.Sum}
		}
		return total
	}
	m := sample{
		at: r.At, adds: s.Adds, errors: r.Workers.Failed, queued: s.Queued, inWork: r.InWork(),
		onHold: s.OnHold, waiting: s.Waiting, latency: sum(s.Latency), work: sum(s.WorkDuration),
	}
	if s.WorkDuration != nil {
		m.dones = s.WorkDuration.Count()
	} else if open := uint64(max(0, s.Queued+s.Again+s.Processing)); s.Shared == nil && open <= s.Adds {
		// Without times: what was added is done, or still there. (A shared queue counts its own adds alone.)
		m.dones = s.Adds - open
	}
	return m
}

// rates are numbers per second.
type rates struct{ Adds, Dones, Errors float64 }

// point is what there was at a time, and what had happened since the point before. The times are means in
// seconds, 0 if no key was taken or done.
type point struct {
	rates
	queued, inWork, onHold, waiting, latency, work float64
}

// pointBetween returns what happened from a to b, in least at least, and what there was at b. (After a sample
// that was late the next one is early: few events in a short time would look like a high rate.)
func pointBetween(a, b sample, least time.Duration) point {
	seconds := max(b.at.Sub(a.at), least).Seconds()
	perSecond := func(before, now uint64) float64 {
		if seconds <= 0 || now < before { // A sum that falls lacks a pool that has ended: what is left is not new.
			return 0
		}
		return float64(now-before) / seconds
	}
	mean := func(before, now [2]float64) float64 {
		if now[0] <= before[0] {
			return 0
		}
		return max(0, now[1]-before[1]) / (now[0] - before[0])
	}
	return point{
		rates:  rates{perSecond(a.adds, b.adds), perSecond(a.dones, b.dones), perSecond(a.errors, b.errors)},
		queued: float64(b.queued), inWork: float64(b.inWork),
		onHold: float64(b.onHold), waiting: float64(b.waiting),
		latency: mean(a.latency, b.latency), work: mean(a.work, b.work),
	}
}

// begin notes the first look at a queue, at which nothing has happened yet. It ignores later ones.
func (h *history) begin(s sample, t times) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.samples) == 0 {
		h.mu.samples, h.mu.started, h.mu.middle = []sample{s}, t, t
	}
}

// add adds a sample.
func (h *history) add(s sample, t times) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.samples = append(h.mu.samples[max(0, len(h.mu.samples)+1-historyLen):], s)
	if t.at.Sub(h.mu.middle.at) >= recentFor {
		h.mu.started, h.mu.middle = h.mu.middle, t
	}
}

// points returns what happened between the samples, oldest first.
func (h *history) points(every time.Duration) (all []point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.mu.samples[1:] {
		all = append(all, pointBetween(h.mu.samples[i], s, every))
	}
	return all
}

// rates returns the rates of the last minute.
func (h *history) rates(now sample) rates {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := h.mu.samples[0]
	for _, s := range slices.Backward(h.mu.samples) {
		if now.at.Sub(s.at) >= time.Minute {
			since = s
			break
		}
	}
	return pointBetween(since, now, 0).rates
}

// sample reads the numbers of all queues at every tick until ctx ends.
func (h *Handler) sample(ctx context.Context, ticker clock.Ticker) {
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, r := range h.readAll(ctx) {
			r.entry.history.add(r.sample(), r.times())
		}
	}
}
