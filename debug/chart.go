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
}

const (
	chartWidth  = 300
	chartHeight = 60
)

// source is what a series shows, and what it is called as JSON.
type source struct {
	class, name, json string
	of                func(point) float64
	// isTime: a number of seconds, or zero where it is not known.
	isTime bool
}

func count(class, name, json string, of func(point) float64) source {
	return source{class: class, name: name, json: json, of: of}
}

var (
	queued  = count("a area", "queued", "queued", func(p point) float64 { return float64(p.queued) })
	inWork  = count("b", "in work", "processing", func(p point) float64 { return float64(p.inWork) })
	onHold  = count("d", "on hold", "held", func(p point) float64 { return float64(p.held) })
	waiting = count("c", "waiting", "waiting", func(p point) float64 { return float64(p.waiting) })
	adds    = count("a area", "adds", "adds_per_second", func(p point) float64 { return p.rates().Adds })
	dones   = count("b", "dones", "dones_per_second", func(p point) float64 { return p.rates().Dones })
	failed  = count("d", "errors", "errors_per_second", func(p point) float64 { return p.rates().Errors })
	delayed = count("c", "delayed adds", "retries_per_second",
		func(p point) float64 { return p.rates().Retries })
	latency = source{"a", "in the line", "latency_mean_seconds",
		func(p point) float64 { return float64(p.latencyMean) }, true}
	work = source{"b", "in work", "work_mean_seconds",
		func(p point) float64 { return float64(p.workMean) }, true}
)

// newHistoryReport has one value for each of the last samples, oldest first, and the last ones since then. A
// time is nil if no key was taken or done.
func newHistoryReport(points []point) map[string][]*float64 {
	report := make(map[string][]*float64)
	for _, s := range []source{queued, inWork, onHold, waiting, adds, dones, failed, delayed, latency, work} {
		report[s.json] = mapped(points, func(p point) *float64 {
			v := s.of(p)
			if v == 0 && s.isTime {
				return nil
			}
			return &v
		})
	}
	return report
}

func countText(v float64) string { return number(int64(math.Round(v))) }

func timeText(v float64) string {
	if v == 0 {
		return "0"
	}
	return precise(v)
}

// Charts returns what is drawn on the queue's page.
func (r *queuePage) Charts() []chart {
	q := &r.Queue
	if !q.HasQueue {
		failures := newChart("Errors per second", q.timeline, 0, perSecondText, failed)
		return []chart{failures.withRates(q.Minute.Errors)}
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
		newChart("Keys", q.timeline, 2, countText, keys...),
		newChart("Per second", q.timeline, 0, perSecondText, adds, dones, third).
			withRates(q.Minute.Adds, q.Minute.Dones, rate),
	}
	if q.Timed {
		times := newChart("Times", q.timeline, 0, timeText, latency, work)
		times.Note = "means"
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
		newChart("Queued", q.timeline, 2, countText, queued),
		newChart("Adds per second", q.timeline, 0, perSecondText, count("c", adds.name, "", adds.of)),
	}
}

// newChart draws the sources on one axis from 0 to a round number that is neither below their values nor
// below least.
func newChart(title string, t timeline, least float64, text func(float64) string, sources ...source) chart {
	top := least
	for _, p := range t.points {
		for _, s := range sources {
			top = max(top, s.of(p))
		}
	}
	top = roundUp(top)
	covers := t.covers
	if covers > time.Minute {
		covers = covers.Round(10 * time.Second)
	}
	c := chart{
		Title: title, Y: []string{text(top), text(top / 2), text(0)},
		X:     []string{human(covers) + " ago", human(covers/2) + " ago", "now"},
		Label: fmt.Sprintf("%s over the last %s:", title, human(covers)),
	}
	for i, s := range sources {
		if i > 0 {
			c.Label += ";"
		}
		values := mapped(t.points, s.of)
		line := newSeries(s, values, t.ends, top)
		if n := len(values); n > 0 {
			if line.Now = text(values[n-1]); s.isTime && values[n-1] == 0 {
				line.Now = "–"
			}
			c.Label += fmt.Sprintf(" %s now %s, at most %s", s.name, line.Now, text(slices.Max(values)))
		}
		c.Series = append(c.Series, line)
	}
	return c
}

// newSeries draws values as a line from the left edge of the box to the right one, with a gap where a time is
// not known.
func newSeries(s source, values, ends []float64, top float64) series {
	var line strings.Builder
	open := false
	for i, v := range values {
		if s.isTime && v == 0 {
			open = false
			continue
		}
		// A pixel is left above and below, so that the stroke is not cut.
		down := 1 + (chartHeight-2)*(1-v/top)
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
	all := series{Class: s.class, Name: s.name, Line: line.String()}
	if strings.Contains(s.class, "area") && len(values) > 0 {
		all.Area = fmt.Sprintf("%sL%d,%dL0,%d", all.Line, chartWidth, chartHeight, chartHeight)
	}
	return all
}

// roundUp returns a number that is not below v and, like its half, round.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 2
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, round := range []float64{1, 2, 4, 6, 8} {
		if v <= round*power {
			return round * power
		}
	}
	return 10 * power
}
