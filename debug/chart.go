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
	// right, at equal distances. Label describes the chart to those who do not see it.
	Y, X  []string
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

// source is what a series shows. isTime: a number of seconds, or zero where it is not known.
type source struct {
	class, name string
	of          func(point) float64
	isTime      bool
}

var (
	queued  = source{"a area", "queued", func(p point) float64 { return p.Queued }, false}
	inWork  = source{"b", "in work", func(p point) float64 { return p.InWork }, false}
	onHold  = source{"d", "on hold", func(p point) float64 { return p.OnHold }, false}
	waiting = source{"c", "waiting", func(p point) float64 { return p.Waiting }, false}
	adds    = source{"a area", "adds", func(p point) float64 { return p.Adds }, false}
	dones   = source{"b", "dones", func(p point) float64 { return p.Dones }, false}
	failed  = source{"d", "errors", func(p point) float64 { return p.Errors }, false}
	delayed = source{"c", "delayed adds", func(p point) float64 { return p.Retries }, false}
	latency = source{"a", "in the line", func(p point) float64 { return p.Latency }, true}
	work    = source{"b", "in work", func(p point) float64 { return p.Work }, true}
)

// charts returns what is drawn on the queue's page, from all samples up to now.
func (r *reading) charts(t timeline) []chart {
	if !r.entry.hasQueue() {
		return []chart{t.chart("Errors per second", 0, perSecondText, failed).withRates(r.minute.Errors)}
	}
	third, rate := delayed, r.minute.Retries // Only pools know errors.
	if len(r.pools) > 0 {
		third, rate = failed, r.minute.Errors
	}
	keys := []source{queued, inWork, waiting}
	if slices.ContainsFunc(t.points, func(p point) bool { return p.OnHold > 0 }) {
		keys = append(keys, onHold)
	}
	all := []chart{
		t.chart("Keys", 2, countText, keys...),
		t.chart("Per second", 0, perSecondText, adds, dones, third).withRates(r.minute.Adds, r.minute.Dones, rate),
	}
	if r.stats.Latency != nil {
		times := t.chart("Times", 0, timeText, latency, work)
		times.Note = "means"
		all = append(all, times)
	}
	return all
}

// sparks returns what is drawn in the queue's row of the list, each number on its own scale. What came and
// went between two samples is in no depth, but in the adds.
func (r *reading) sparks(t timeline) []chart {
	added := adds
	added.class = "c"
	return []chart{t.chart("Queued", 2, countText, queued), t.chart("Adds per second", 0, perSecondText, added)}
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

// chart draws the sources on one axis from 0 to a round number that is neither below their values nor below
// least.
func (t timeline) chart(title string, least float64, text func(float64) string, sources ...source) chart {
	top := least
	for _, s := range sources {
		top = max(top, t.most(s))
	}
	top = roundUp(top)
	last := t.points[len(t.points)-1]
	covers := last.at.Sub(t.from)
	if covers > time.Minute {
		covers = covers.Round(10 * time.Second)
	}
	c := chart{
		Title: title, Y: []string{text(top), text(top / 2), text(0)},
		X:     []string{human(covers) + " ago", human(covers/2) + " ago", "now"},
		Label: fmt.Sprintf("%s over the last %s:", title, human(covers)),
	}
	for i, s := range sources {
		drawn := series{Class: s.class, Name: s.name, Line: t.line(s, top), Now: text(s.of(last))}
		if s.isTime && s.of(last) == 0 {
			drawn.Now = "–"
		}
		if strings.Contains(s.class, "area") {
			drawn.Area = fmt.Sprintf("%sL%d,%dL0,%d", drawn.Line, chartWidth, chartHeight, chartHeight)
		}
		if i > 0 {
			c.Label += ";"
		}
		c.Label += fmt.Sprintf(" %s now %s, at most %s", s.name, drawn.Now, text(t.most(s)))
		c.Series = append(c.Series, drawn)
	}
	return c
}

// most returns the greatest value of a source.
func (t timeline) most(s source) float64 { return slices.Max(mapped(t.points, s.of)) }

// line draws a source from the left edge of the box to the right one, with a gap where a time is not known.
func (t timeline) line(s source, top float64) string {
	covers := t.points[len(t.points)-1].at.Sub(t.from)
	var line strings.Builder
	across, isOpen := 0.0, false // What is known of the first interval holds from its begin.
	for i, p := range t.points {
		before := across
		if across = chartWidth; covers > 0 {
			across = chartWidth * float64(p.at.Sub(t.from)) / float64(covers)
		}
		v := s.of(p)
		if s.isTime && v == 0 {
			isOpen = false
			continue
		}
		// A pixel is left above and below, so that the stroke is not cut.
		down := 1 + (chartHeight-2)*(1-v/top)
		if !isOpen {
			fmt.Fprintf(&line, "M%.5g,%.4g", before, down)
		}
		isLast := i+1 == len(t.points) // A flat part needs only its ends.
		if !isOpen || isLast || s.of(t.points[i-1]) != v || s.of(t.points[i+1]) != v {
			fmt.Fprintf(&line, "L%.5g,%.4g", across, down)
		}
		isOpen = true
	}
	return line.String()
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
