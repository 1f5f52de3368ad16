package debug

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// chart is a few numbers over the last minutes, drawn in a box of chartWidth by chartHeight that the page
// stretches. The labels are text beside the box, so that they are not stretched.
type chart struct {
	Title, Note string
	Series      []series
	// Y are the labels of the vertical axis from top to bottom, and X those of the horizontal one from left to
	// right, at equal distances.
	Y, X []string
	// Label describes the chart to those who do not see it.
	Label string
}

// series is one number over time. Class is how it is drawn, Now its last value.
type series struct {
	Class, Name, Now string
	Line, Area       string
	// Quiet leaves it out of the legend, because the chart's Note explains it.
	Quiet bool
}

const (
	chartWidth  = 300
	chartHeight = 60
)

// source is what a series shows, and what it is called as JSON.
type source struct {
	class, name, json string
	of                func(point) float64
}

var (
	queued  = source{"a area", "queued", "queued", func(p point) float64 { return float64(p.queued) }}
	inWork  = source{"b", "in work", "processing", func(p point) float64 { return float64(p.inWork) }}
	onHold  = source{"d", "on hold", "held", func(p point) float64 { return float64(p.held) }}
	waiting = source{"c", "waiting", "waiting", func(p point) float64 { return float64(p.waiting) }}
	adds    = source{"a area", "adds", "adds_per_second", func(p point) float64 { return p.rates().Adds }}
	dones   = source{"b", "dones", "dones_per_second", func(p point) float64 { return p.rates().Dones }}
	failed  = source{"d", "errors", "errors_per_second", func(p point) float64 { return p.rates().Errors }}
	delayed = source{"c", "delayed adds", "retries_per_second",
		func(p point) float64 { return p.rates().Retries }}
	latency = source{"a", "in the line", "latency_mean_seconds",
		func(p point) float64 { return float64(p.latencyMean) }}
	latencyMost = source{"a most", "99% in the line", "",
		func(p point) float64 { return float64(p.latencyMost) }}
	work     = source{"b", "in work", "work_mean_seconds", func(p point) float64 { return float64(p.workMean) }}
	workMost = source{"b most", "99% in work", "", func(p point) float64 { return float64(p.workMost) }}
)

// newHistoryReport has one value for each of the last samples, oldest first, and the last ones since then. A
// time is nil if no key was taken or done.
func newHistoryReport(points []point) map[string][]*float64 {
	report := make(map[string][]*float64)
	for _, s := range []source{queued, inWork, onHold, waiting, adds, dones, failed, delayed, latency, work} {
		report[s.json] = mapped(points, func(p point) *float64 {
			v := s.of(p)
			if v == 0 && strings.HasSuffix(s.json, "_mean_seconds") {
				return nil
			}
			return &v
		})
	}
	return report
}

// boundText returns a function that says a time, for a histogram whose last bound is last: +Inf is what is
// longer.
func boundText(last float64) func(float64) string {
	return func(s float64) string {
		switch {
		case s <= 0:
			return "–"
		case math.IsInf(s, 1):
			return "> " + precise(last)
		}
		return precise(s)
	}
}

func countText(v float64) string { return number(int64(math.Round(v))) }

// Charts returns what is drawn on the queue's page.
func (r *queuePage) Charts() []chart {
	q := &r.Queue
	if !q.HasQueue {
		all := newChart("Errors per second", q.timeline, linear, perSecondText, failed)
		return []chart{all.withRates(q.Minute.Errors)}
	}
	third, rate := delayed, q.Minute.Retries // Only pools know errors.
	if len(q.Pools) > 0 {
		third, rate = failed, q.Minute.Errors
	}
	keys := []source{queued, inWork, waiting}
	if slices.ContainsFunc(q.timeline.points, func(p point) bool { return p.held > 0 }) {
		keys = append(keys, onHold)
	}
	all := []chart{
		newChart("Keys", q.timeline, whole, countText, keys...),
		newChart("Per second", q.timeline, linear, perSecondText, adds, dones, third).
			withRates(q.Minute.Adds, q.Minute.Dones, rate),
	}
	if q.Timed {
		last := max(r.Latency.last, r.Work.last)
		sources := []source{latency, latencyMost, work, workMost}
		scale := func(values []float64) axis { return logarithmic(values, last) }
		times := newChart("Times", q.timeline, scale, boundText(last), sources...)
		times.Note = "means, dotted 99%"
		all = append(all, times)
	}
	return all
}

// withRates shows the rates of the last minute as the values of now, which every page shows: those of the
// last seconds jump.
func (c chart) withRates(rates ...float64) chart {
	for i := range c.Series {
		c.Series[i].Now = perSecondText(rates[i])
	}
	c.Note = "in the last minute"
	return c
}

// Sparks returns what is drawn in the queue's row of the list, each number on its own scale. What came and
// went between two samples is in no depth, but in the adds.
func (q queueReport) Sparks() []chart {
	return []chart{
		newChart("Queued", q.timeline, whole, countText, queued),
		newChart("Adds per second", q.timeline, linear, perSecondText, source{"c", adds.name, "", adds.of}),
	}
}

func newChart(title string, t timeline, scale func([]float64) axis, text func(float64) string,
	sources ...source) chart {
	values := make([][]float64, len(sources))
	for i, s := range sources {
		values[i] = mapped(t.points, s.of)
	}
	y := scale(slices.Concat(values...))
	c := chart{Title: title}
	for _, v := range y.labels {
		c.Y = append(c.Y, text(v))
	}
	covers := t.covers
	if covers > time.Minute {
		covers = covers.Round(10 * time.Second)
	}
	c.X = []string{human(covers) + " ago", human(covers/2) + " ago", "now"}
	var texts []string
	for i, s := range sources {
		of := values[i]
		line := newSeries(s, of, t.ends, y)
		line.Now = text(of[len(of)-1])
		c.Series = append(c.Series, line)
		texts = append(texts, fmt.Sprintf(" %s now %s, at most %s", s.name, line.Now, text(slices.Max(of))))
	}
	c.Label = fmt.Sprintf("%s over the last %s:%s", title, human(covers), strings.Join(texts, ";"))
	return c
}

// newSeries draws values as a line from the left edge of the box to the right one, with a gap where there is
// none.
func newSeries(s source, values, ends []float64, y axis) series {
	var line strings.Builder
	open := false
	for i, v := range values {
		h := y.height(v)
		if math.IsNaN(h) {
			open = false
			continue
		}
		// A pixel is left above and below, so that the stroke is not cut.
		down := 1 + (chartHeight-2)*(1-h)
		if !open {
			from := ends[i]
			if i == 0 {
				from = 0 // What is known of the first interval holds from its begin.
			}
			fmt.Fprintf(&line, "M%.5g,%.4g", from*chartWidth, down)
		}
		// A flat part needs only its ends.
		if !open || i+1 == len(values) || values[i-1] != v || values[i+1] != v {
			fmt.Fprintf(&line, "L%.5g,%.4g", ends[i]*chartWidth, down)
		}
		open = true
	}
	all := series{Class: s.class, Name: s.name, Line: line.String(), Quiet: strings.HasSuffix(s.class, " most")}
	if strings.Contains(s.class, "area") {
		all.Area = fmt.Sprintf("%sL%d,%dL0,%d", all.Line, chartWidth, chartHeight, chartHeight)
	}
	return all
}

// axis is a vertical scale.
type axis struct {
	// height is where a value is, 0 at the bottom and 1 at the top, or NaN where nothing is drawn.
	height func(v float64) float64
	// labels are at equal distances, from top to bottom.
	labels []float64
}

// whole is linear for whole numbers: its middle is one, too.
func whole(values []float64) axis { return linear(append(values, 2)) }

// linear returns an axis from 0 to a number that is not below the values and, like its half, round.
func linear(values []float64) axis {
	top := 2.0
	if most := slices.Max(values); most > 0 {
		power := math.Pow(10, math.Floor(math.Log10(most)))
		for _, round := range []float64{10, 8, 6, 4, 2, 1} {
			if most <= round*power {
				top = round * power
			}
		}
	}
	return axis{func(v float64) float64 { return v / top }, []float64{top, top / 2, 0}}
}

// logarithmic returns axes between two powers of ten, without the values that are zero. They are for times in
// buckets: +Inf is above the last bound, and drawn there, or where the longest time is.
func logarithmic(values []float64, last float64) axis {
	least, most := math.Inf(1), 0.0
	for _, v := range values {
		if math.IsInf(v, 1) {
			v = last
		}
		if v > 0 {
			least, most = min(least, v), max(most, v)
		}
	}
	if most == 0 {
		least, most = 1e-3, 0.1
	}
	// Rounded, because the bounds of buckets are powers of ten that a float32 does not have.
	low := math.Floor(math.Log10(least) + 1e-6)
	high := math.Ceil(math.Log10(most) - 1e-6)
	if high-low < 2 {
		high = low + 2
	}
	if math.Mod(high-low, 2) != 0 {
		high++ // The middle is a power of ten, too.
	}
	low = max(low, high-6) // What is shorter is at the bottom.
	return axis{
		func(v float64) float64 {
			if v <= 0 {
				return math.NaN()
			}
			return min(max((math.Log10(min(v, most))-low)/(high-low), 0), 1)
		},
		[]float64{math.Pow(10, high), math.Pow(10, (low+high)/2), math.Pow(10, low)},
	}
}
