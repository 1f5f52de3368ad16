package debug

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

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
	adds, errors                    float64
	lineTimes, workTimes            timeSum // of the keys that have left the line, and work
}

// timeSum is how many times were counted, and the sum of their seconds.
type timeSum struct{ count, seconds float64 }

func (r *reading) sample() sample {
	s := r.Stats
	m := sample{
		at: r.At, queued: float64(s.Queued), inWork: float64(r.InWork()), waiting: float64(s.Waiting),
		onHold: float64(s.OnHold), adds: float64(s.Adds), errors: float64(r.Workers.Failed),
	}
	if r.IsTimed() {
		m.lineTimes = timeSum{float64(s.Latency.Count()), s.Latency.Sum}
		m.workTimes = timeSum{float64(s.WorkDuration.Count()), s.WorkDuration.Sum}
	}
	return m
}

func addsPerSecond(a, b sample) float64   { return perSecond(b.adds-a.adds, a, b) }
func errorsPerSecond(a, b sample) float64 { return perSecond(b.errors-a.errors, a, b) }
func donesPerSecond(a, b sample) float64  { return perSecond(b.workTimes.count-a.workTimes.count, a, b) }

// perSecond returns the rate of n events between two samples. A sum that falls lacks a pool that has ended:
// what is left is not new. Two samples that are close together make no high rate of few events.
func perSecond(n float64, a, b sample) float64 { return max(0, n) / max(1, b.at.Sub(a.at).Seconds()) }

func meanLineTime(a, b sample) float64 { return mean(a.lineTimes, b.lineTimes) }
func meanWorkTime(a, b sample) float64 { return mean(a.workTimes, b.workTimes) }

// mean returns the mean of the times between two sums, or NaN without any.
func mean(a, b timeSum) float64 {
	if b.count <= a.count {
		return math.NaN()
	}
	return max(0, b.seconds-a.seconds) / (b.count - a.count)
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
	return rates{addsPerSecond(since, now), donesPerSecond(since, now), errorsPerSecond(since, now)}
}

// sampleAll reads the numbers of all queues at every tick until ctx ends.
func (h *Handler) sampleAll(ctx context.Context, ticker clock.Ticker) {
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
