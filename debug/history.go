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
	// sampleEvery is how often the numbers of all queues are read, and historyLen how many samples are kept:
	// those of ten minutes.
	sampleEvery = 5 * time.Second
	historyLen  = 121
	// recentFor is the shortest time that the table of times covers, once the queue is that old. The longest one
	// is twice that.
	recentFor = 5 * time.Minute
)

// history has the last samples of a queue.
type history struct {
	mu struct {
		sync.Mutex
		samples []sample // oldest first
		// started and middle are older times, for those of the last minutes. When middle is recentFor old, it
		// becomes started: at 12 minutes started is that of 5 minutes, and middle that of 10.
		started, middle times
	}
}

// sample is what a queue had at some time, and had counted until then.
type sample struct {
	at                              time.Time
	queued, inWork, waiting, onHold float64
	adds, dones, errors             float64
	// inLineFor and inWorkFor are how many keys have left the line and work, and the sum of their seconds there.
	inLineFor, inWorkFor [2]float64
}

func (r *reading) sample() sample {
	s := r.Stats
	m := sample{
		at: r.At, queued: float64(s.Queued), inWork: float64(r.InWork()), waiting: float64(s.Waiting),
		onHold: float64(s.OnHold), adds: float64(s.Adds), errors: float64(r.Workers.Failed),
	}
	if r.IsTimed() {
		m.inLineFor = [2]float64{float64(s.Latency.Count()), s.Latency.Sum}
		m.inWorkFor = [2]float64{float64(s.WorkDuration.Count()), s.WorkDuration.Sum}
		m.dones = m.inWorkFor[0]
	}
	return m
}

// times are histograms of how long keys were in the line, in work and on hold, of the delays that failed keys
// got, and of how long changes took. Those that are not known are nil.
type times struct {
	at  time.Time
	all [5]*workqueue.Histogram
}

func (r *reading) times() times {
	s, w := r.Stats, r.Workers
	return times{at: r.At, all: [5]*workqueue.Histogram{
		s.Latency, s.WorkDuration, w.HoldDurations, w.RetryDelays, w.Changes,
	}}
}

// add adds a sample. At the first one nothing has happened yet.
func (h *history) add(s sample, t times) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.samples) == 0 {
		h.mu.started, h.mu.middle = t, t
	}
	h.mu.samples = append(h.mu.samples[max(0, len(h.mu.samples)+1-historyLen):], s)
	if t.at.Sub(h.mu.middle.at) >= recentFor {
		h.mu.started, h.mu.middle = h.mu.middle, t
	}
}

// all returns a copy of the samples.
func (h *history) all() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.mu.samples)
}

// rates are numbers per second.
type rates struct{ Adds, Dones, Errors float64 }

// rates returns the rates of the last minute.
func (h *history) rates(now sample) rates {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := now
	for i, s := range h.mu.samples {
		if i == 0 || now.at.Sub(s.at) >= time.Minute {
			since = s
		}
	}
	return rates{addsOf(since, now), donesOf(since, now), errorsOf(since, now)}
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
