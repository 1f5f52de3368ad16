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
	isTime            bool // a number of seconds, or zero where it is not known
}

var (
	queued  = source{"a area", "queued", "queued", func(p point) float64 { return p.queued }, false}
	inWork  = source{"b", "in work", "processing", func(p point) float64 { return p.inWork }, false}
	onHold  = source{"d", "on hold", "held", func(p point) float64 { return p.held }, false}
	waiting = source{"c", "waiting", "waiting", func(p point) float64 { return p.waiting }, false}
	adds    = source{"a area", "adds", "adds_per_second", func(p point) float64 { return p.Adds }, false}
	dones   = source{"b", "dones", "dones_per_second", func(p point) float64 { return p.Dones }, false}
	failed  = source{"d", "errors", "errors_per_second", func(p point) float64 { return p.Errors }, false}
	delayed = source{"c", "delayed adds", "retries_per_second",
		func(p point) float64 { return p.Retries }, false}
	latency = source{"a", "in the line", "latency_mean_seconds",
		func(p point) float64 { return p.latency }, true}
	work = source{"b", "in work", "work_mean_seconds", func(p point) float64 { return p.work }, true}
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
func (q queueReport) Charts() []chart {
	if len(q.points) == 0 {
		return nil
	}
	if !q.HasQueue {
		return []chart{newChart("Errors per second", q, 0, perSecondText, failed).withRates(q.Minute.Errors)}
	}
	third, rate := delayed, q.Minute.Retries // Only pools know errors.
	if len(q.Pools) > 0 {
		third, rate = failed, q.Minute.Errors
	}
	keys := []source{queued, inWork, waiting}
	if slices.ContainsFunc(q.points, func(p point) bool { return p.held > 0 }) {
		keys = append(keys, onHold)
	}
	all := []chart{
		newChart("Keys", q, 2, countText, keys...),
		newChart("Per second", q, 0, perSecondText, adds, dones, third).
			withRates(q.Minute.Adds, q.Minute.Dones, rate),
	}
	if q.Timed {
		times := newChart("Times", q, 0, timeText, latency, work)
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
	if len(q.points) == 0 {
		return nil
	}
	line := adds
	line.class = "c"
	return []chart{
		newChart("Queued", q, 2, countText, queued),
		newChart("Adds per second", q, 0, perSecondText, line),
	}
}

// newChart draws the sources on one axis from 0 to a round number that is neither below their values nor
// below least.
func newChart(title string, q queueReport, least float64, text func(float64) string, sources ...source) chart {
	top := least
	for _, p := range q.points {
		for _, s := range sources {
			top = max(top, s.of(p))
		}
	}
	top = roundUp(top)
	last := q.points[len(q.points)-1]
	covers := last.at.Sub(q.from)
	if covers > time.Minute {
		covers = covers.Round(10 * time.Second)
	}
	c := chart{
		Title: title, Y: []string{text(top), text(top / 2), text(0)},
		X:     []string{human(covers) + " ago", human(covers/2) + " ago", "now"},
		Label: fmt.Sprintf("%s over the last %s:", title, human(covers)),
	}
	for _, s := range sources {
		line := newSeries(s, q.points, q.from, top)
		if line.Now = text(s.of(last)); s.isTime && s.of(last) == 0 {
			line.Now = "–"
		}
		most := slices.Max(mapped(q.points, s.of))
		c.Label += fmt.Sprintf(" %s now %s, at most %s;", s.name, line.Now, text(most))
		c.Series = append(c.Series, line)
	}
	c.Label = strings.TrimSuffix(c.Label, ";")
	return c
}

// newSeries draws a line from the left edge of the box to the right one, with a gap where a time is not
// known.
func newSeries(s source, points []point, from time.Time, top float64) series {
	covers := points[len(points)-1].at.Sub(from)
	across := func(t time.Time) float64 {
		if covers <= 0 {
			return chartWidth
		}
		return chartWidth * float64(t.Sub(from)) / float64(covers)
	}
	var line strings.Builder
	open := false
	for i, p := range points {
		v := s.of(p)
		if s.isTime && v == 0 {
			open = false
			continue
		}
		// A pixel is left above and below, so that the stroke is not cut.
		down := 1 + (chartHeight-2)*(1-v/top)
		if !open {
			start := across(p.at)
			if i == 0 {
				start = 0 // What is known of the first interval holds from its begin.
			}
			fmt.Fprintf(&line, "M%.5g,%.4g", start, down)
		}
		// A flat part needs only its ends.
		isFlat := open && i+1 < len(points) && s.of(points[i-1]) == v && s.of(points[i+1]) == v
		if !isFlat {
			fmt.Fprintf(&line, "L%.5g,%.4g", across(p.at), down)
		}
		open = true
	}
	drawn := series{Class: s.class, Name: s.name, Line: line.String()}
	if strings.Contains(s.class, "area") {
		drawn.Area = fmt.Sprintf("%sL%d,%dL0,%d", drawn.Line, chartWidth, chartHeight, chartHeight)
	}
	return drawn
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
