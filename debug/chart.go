package debug

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// chart is a few numbers over the last historyLen samples, drawn in a box of chartWidth by chartHeight that
// the page stretches. The labels are text beside the box, so that they are not stretched.
type chart struct {
	Title  string
	Series []series
	// Top is the label of the upper end of the vertical axis, which begins at 0. Label describes the chart to
	// those who do not see it.
	Top, Label string
}

// series is a number over time, and how it is drawn.
type series struct{ Class, Name, Line string }

const (
	chartWidth  = 300
	chartHeight = 60
)

// source is what a series shows at b, and since the sample a before it: what happens between two samples is
// in the rates, however short it was.
type source struct {
	class, name string
	of          func(a, b sample) float64
}

func addsOf(a, b sample) float64   { return perSecond(b.adds-a.adds, a, b) }
func donesOf(a, b sample) float64  { return perSecond(b.dones-a.dones, a, b) }
func errorsOf(a, b sample) float64 { return perSecond(b.errors-a.errors, a, b) }

// perSecond returns a rate. A sum that falls lacks a pool that has ended: what is left is not new. Two
// samples that are close together make no high rate of few events.
func perSecond(n float64, a, b sample) float64 { return max(0, n) / max(1, b.at.Sub(a.at).Seconds()) }

var (
	keySources = []source{
		{"a", "queued", func(_, b sample) float64 { return b.queued }},
		{"b", "in work", func(_, b sample) float64 { return b.inWork }},
		{"c", "waiting", func(_, b sample) float64 { return b.waiting }},
		{"d", "on hold", func(_, b sample) float64 { return b.onHold }},
	}
	rateSources = []source{{"a", "adds", addsOf}, {"b", "dones", donesOf}, {"d", "errors", errorsOf}}
	timeSources = []source{
		{"a", "in the line", func(a, b sample) float64 { return mean(a.inLineFor, b.inLineFor) }},
		{"b", "in work", func(a, b sample) float64 { return mean(a.inWorkFor, b.inWorkFor) }},
	}
)

// mean returns the mean of the times that were counted between two samples, or NaN without any.
func mean(a, b [2]float64) float64 {
	if b[0] <= a[0] {
		return math.NaN()
	}
	return max(0, b[1]-a[1]) / (b[0] - a[0])
}

// charts returns what is drawn on a page. A queue that does not read the clock has no dones and no times.
func charts(samples []sample, isTimed bool) []chart {
	keys := newChart("Keys", samples, countText, keySources...)
	if !isTimed {
		return []chart{keys, newChart("Per second", samples, perSecondText, rateSources[0], rateSources[2])}
	}
	return []chart{
		keys,
		newChart("Per second", samples, perSecondText, rateSources...),
		newChart("Mean times", samples, secondsText, timeSources...),
	}
}

// newChart draws the sources on one axis from 0 to the greatest of their values. The last sample is at the
// right edge. Without a count the last mean stays.
func newChart(title string, samples []sample, text func(float64) string, of ...source) chart {
	top, all := 0.0, make([][]float64, len(of))
	for i, s := range of {
		last := 0.0
		for n := 1; n < len(samples); n++ {
			if v := s.of(samples[n-1], samples[n]); !math.IsNaN(v) {
				last = v
			}
			all[i] = append(all[i], last)
			top = max(top, last)
		}
	}
	c := chart{
		Title: title, Top: text(top),
		Label: title + " over the last " + human((historyLen-1)*sampleEvery),
	}
	for i, s := range of {
		c.Series = append(c.Series, series{s.class, s.name, line(all[i], top)})
		if n := len(all[i]); n > 0 {
			c.Label += fmt.Sprintf("; %s now %s, at most %s", s.name, text(all[i][n-1]), text(slices.Max(all[i])))
		}
	}
	return c
}

// line draws the values. A pixel is left above and below, so that the stroke is not cut.
func line(values []float64, top float64) string {
	var line strings.Builder
	for i, v := range values {
		across := chartWidth * (1 - float64(len(values)-1-i)/(historyLen-2))
		down := 1 + (chartHeight-2)*(1-v/max(top, math.SmallestNonzeroFloat64))
		fmt.Fprintf(&line, "%c%.4g,%.4g", "ML"[min(i, 1)], across, down)
	}
	return line.String()
}
