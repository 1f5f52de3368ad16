package debug

import (
	"fmt"
	"math"
	"time"

	"github.com/keyedqueue/workqueue"
)

// times are histograms of how long keys were in the line, in work and on hold, of the delays that failed keys
// got, and of how long changes took. Those that are not known are nil.
type times struct {
	at         time.Time
	histograms [5]*workqueue.Histogram
}

func (r *reading) times() times {
	s, w := r.Stats, r.Workers
	return times{at: r.At, histograms: [5]*workqueue.Histogram{
		s.Latency, s.WorkDuration, w.HoldDurations, w.RetryDelays, w.Changes,
	}}
}

// timesTable sums up the times of the last minutes. It covers that long.
type timesTable struct {
	Covers time.Duration
	Rows   []timesRow
}

// timesRow sums up a histogram, as texts.
type timesRow struct {
	Name, Count, Mean, Half, Ninety, NinetyNine string
}

// timesNames are what a page calls the times.
var timesNames = [5]string{"In the line", "In work", "On hold", "Until a retry", "A change"}

// recent returns the times of the last minutes that are known.
func (h *history) recent(now times) timesTable {
	h.mu.Lock()
	since := h.mu.started
	h.mu.Unlock()
	if since.at.IsZero() { // The queue was registered a moment ago.
		since = now
	}
	t := timesTable{Covers: now.at.Sub(since.at)}
	for i := range now.histograms {
		if counted := difference(now.histograms[i], since.histograms[i]); counted != nil {
			t.Rows = append(t.Rows, newTimesRow(timesNames[i], counted))
		}
	}
	return t
}

func newTimesRow(name string, h *workqueue.Histogram) timesRow {
	n := h.Count()
	if n == 0 {
		return timesRow{name, "0", "–", "–", "–", "–"}
	}
	mean := secondsText(h.Sum / float64(n))
	return timesRow{name, number(n), mean, atMost(h, n, 0.5), atMost(h, n, 0.9), atMost(h, n, 0.99)}
}

// atMost says which bound a part of count times does not exceed, or that the greatest one is too small.
func atMost(h *workqueue.Histogram, count uint64, part float64) string {
	want, seen, last := uint64(math.Ceil(float64(count)*part)), uint64(0), 0.0
	for i, bound := range h.Bounds {
		if seen += h.Counts[i]; seen >= want {
			return fmt.Sprint("≤ ", secondsText(bound))
		}
		last = bound
	}
	return "> " + secondsText(last)
}

// difference returns what now has counted since before: without before, all. It returns nil if that is not
// known. If a count falls, a pool has ended, and how much of the rest is new is not known.
func difference(now, before *workqueue.Histogram) *workqueue.Histogram {
	if now == nil || before == nil {
		return now
	}
	d := &workqueue.Histogram{Bounds: now.Bounds, Sum: now.Sum - before.Sum}
	for i := range now.Counts {
		if len(now.Counts) != len(before.Counts) || now.Counts[i] < before.Counts[i] {
			return nil
		}
		d.Counts = append(d.Counts, now.Counts[i]-before.Counts[i])
	}
	return d
}
