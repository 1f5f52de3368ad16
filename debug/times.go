package debug

import (
	"math"

	"github.com/keyedqueue/workqueue"
)

// timesRow is a row of the table of times.
type timesRow struct {
	Name string
	*timesReport
}

// Rows returns the times that are known.
func (r recentReport) Rows() (rows []timesRow) {
	for _, row := range []timesRow{
		{"In the line", r.Latency}, {"In work", r.Work}, {"On hold", r.Hold},
		{"Until a retry", r.Delays}, {"A change", r.Change},
	} {
		if row.timesReport != nil {
			rows = append(rows, row)
		}
	}
	return rows
}

func newTimesReport(h *workqueue.Histogram) *timesReport {
	if h == nil {
		return nil
	}
	r := &timesReport{Count: h.Count()}
	if n := len(h.Bounds); n > 0 {
		r.Last = h.Bounds[n-1]
	}
	if r.Count > 0 {
		r.Mean = h.Sum / float64(r.Count)
		r.Half, r.Ninety, r.Most = atMost(h, r.Count, 0.5), atMost(h, r.Count, 0.9), atMost(h, r.Count, 0.99)
	}
	return r
}

// atMost returns the bound that a part of count times does not exceed, or nil without such a bound.
func atMost(h *workqueue.Histogram, count uint64, part float64) *float64 {
	want, seen := uint64(math.Ceil(float64(count)*part)), uint64(0)
	for i, bound := range h.Bounds {
		if seen += h.Counts[i]; seen >= want {
			return &bound
		}
	}
	return nil
}

// difference returns what now has counted since before, or now if before is no earlier state of it.
func difference(now, before *workqueue.Histogram) *workqueue.Histogram {
	if now == nil || before == nil || len(now.Counts) != len(before.Counts) {
		return now
	}
	d := &workqueue.Histogram{Bounds: now.Bounds, Sum: now.Sum - before.Sum}
	for i := range now.Counts {
		if now.Counts[i] < before.Counts[i] {
			return now
		}
		d.Counts = append(d.Counts, now.Counts[i]-before.Counts[i])
	}
	return d
}

// MeanText returns the mean for display.
func (r *timesReport) MeanText() string {
	if r.Count == 0 {
		return "–"
	}
	return precise(r.Mean)
}

// Text returns one of the bounds for display: those that are missing are above the greatest one.
func (r *timesReport) Text(bound *float64) string {
	switch {
	case r.Count == 0:
		return "–"
	case bound == nil:
		return "> " + precise(r.Last)
	}
	return "≤ " + precise(*bound)
}
