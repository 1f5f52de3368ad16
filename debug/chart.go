package debug

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// chart is a few numbers over the last historyLen samples, drawn in a box of chartWidth by chartHeight that
// the page stretches. The labels are text beside the box, so that they are not stretched.
type chart struct {
	Title  string
	Series []series
	// Y are the labels of the vertical axis from top to bottom, and X those of the horizontal one from left to
	// right, at equal distances. Label describes the chart to those who do not see it.
	Y, X  []string
	Label string
}

// series is a number over time, and how it is drawn.
type series struct{ Class, Name, Line string }

const (
	chartWidth  = 300
	chartHeight = 60
)

// source is what a series shows.
type source struct {
	class, name string
	of          func(point) float64
}

var (
	queued  = source{"a", "queued", func(p point) float64 { return p.queued }}
	adds    = source{"c", "adds", func(p point) float64 { return p.Adds }}
	sources = map[string][]source{
		"Keys": {
			queued,
			{"b", "in work", func(p point) float64 { return p.inWork }},
			{"c", "waiting", func(p point) float64 { return p.waiting }},
			{"d", "on hold", func(p point) float64 { return p.onHold }},
		},
		"Per second": {
			adds,
			{"b", "dones", func(p point) float64 { return p.Dones }},
			{"d", "errors", func(p point) float64 { return p.Errors }},
		},
		"Mean times": {
			{"a", "in the line", func(p point) float64 { return p.latency }},
			{"b", "in work", func(p point) float64 { return p.work }},
		},
	}
)

// charts returns what is drawn on the queue's page.
func charts(points []point, every time.Duration) []chart {
	return []chart{
		newChart("Keys", points, every, countText, sources["Keys"]...),
		newChart("Per second", points, every, perSecondText, sources["Per second"]...),
		newChart("Mean times", points, every, precise, sources["Mean times"]...),
	}
}

// sparks returns what is drawn in the queue's row of the list, each number on its own scale. What came and
// went between two samples is in no depth, but in the adds.
func sparks(points []point, every time.Duration) []chart {
	return []chart{
		newChart("Queued", points, every, countText, queued),
		newChart("Adds per second", points, every, perSecondText, adds),
	}
}

// newChart draws the sources on one axis from 0 to a round number that is not below their values. The last
// point is at the right edge.
func newChart(title string, points []point, every time.Duration, text func(float64) string, sources ...source) chart {
	top := 0.0
	for _, s := range sources {
		for _, p := range points {
			top = max(top, s.of(p))
		}
	}
	top = roundUp(top)
	covers := (historyLen - 1) * every
	c := chart{
		Title: title, Y: []string{text(top), text(top / 2), text(0)},
		X:     []string{human(covers) + " ago", human(covers/2) + " ago", "now"},
		Label: fmt.Sprintf("%s over the last %s:", title, human(covers)),
	}
	for i, s := range sources {
		values := mapped(points, s.of)
		c.Series = append(c.Series, series{s.class, s.name, line(values, top)})
		if len(values) > 0 {
			c.Label += fmt.Sprintf("%s %s now %s, at most %s", []string{"", ";"}[min(i, 1)], s.name,
				text(values[len(values)-1]), text(slices.Max(values)))
		}
	}
	return c
}

// line draws the values. A pixel is left above and below, so that the stroke is not cut.
func line(values []float64, top float64) string {
	var line strings.Builder
	for i, v := range values {
		across := chartWidth * (1 - float64(len(values)-1-i)/(historyLen-2))
		fmt.Fprintf(&line, "%c%.4g,%.4g", "ML"[min(i, 1)], across, 1+(chartHeight-2)*(1-v/top))
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
