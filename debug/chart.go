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

const (
	chartWidth  = 300
	chartHeight = 60
)

// series is a number over time, drawn as a line. valueAt returns it at sample b, the next one after a.
type series struct {
	Class, Name string
	valueAt     func(a, b sample) float64
	Line        string
}

var (
	queuedKeys  = series{Class: "a", Name: "queued", valueAt: func(_, b sample) float64 { return b.queued }}
	keysInWork  = series{Class: "b", Name: "in work", valueAt: func(_, b sample) float64 { return b.inWork }}
	waitingKeys = series{Class: "c", Name: "waiting", valueAt: func(_, b sample) float64 { return b.waiting }}
	keysOnHold  = series{Class: "d", Name: "on hold", valueAt: func(_, b sample) float64 { return b.onHold }}
	addRate     = series{Class: "a", Name: "adds", valueAt: addsPerSecond}
	doneRate    = series{Class: "b", Name: "dones", valueAt: donesPerSecond}
	errorRate   = series{Class: "d", Name: "errors", valueAt: errorsPerSecond}
	timeInLine  = series{Class: "a", Name: "in the line", valueAt: meanLineTime}
	timeInWork  = series{Class: "b", Name: "in work", valueAt: meanWorkTime}
)

// charts returns what is drawn on a page. A queue that does not read the clock has no dones and no times.
func charts(samples []sample, isTimed bool) []chart {
	keys := newChart("Keys", samples, countText, queuedKeys, keysInWork, waitingKeys, keysOnHold)
	if !isTimed {
		return []chart{keys, newChart("Per second", samples, perSecondText, addRate, errorRate)}
	}
	rates := newChart("Per second", samples, perSecondText, addRate, doneRate, errorRate)
	return []chart{keys, rates, newChart("Mean times", samples, secondsText, timeInLine, timeInWork)}
}

// newChart draws series on one axis from 0 to the greatest of their values. The last sample is at the right
// edge.
func newChart(title string, samples []sample, text func(float64) string, of ...series) chart {
	top, values := 0.0, make([][]float64, len(of))
	for i, s := range of {
		last := 0.0 // stays while there is no value
		for n := 1; n < len(samples); n++ {
			if v := s.valueAt(samples[n-1], samples[n]); !math.IsNaN(v) {
				last = v
			}
			values[i], top = append(values[i], last), max(top, last)
		}
	}
	c := chart{
		Title: title, Series: of, Top: text(top),
		Label: title + " over the last " + human((historyLen-1)*sampleEvery),
	}
	for i, all := range values {
		of[i].Line = line(all, top)
		if n := len(all); n > 0 {
			c.Label += fmt.Sprintf("; %s now %s, at most %s", of[i].Name, text(all[n-1]), text(slices.Max(all)))
		}
	}
	return c
}

// line returns the path of the values, for which top is the upper edge.
func line(values []float64, top float64) string {
	var path strings.Builder
	for i, v := range values {
		x := chartWidth * (1 - float64(len(values)-1-i)/(historyLen-2))
		y := chartHeight * (1 - v/max(top, math.SmallestNonzeroFloat64))
		fmt.Fprintf(&path, "%c%.4g,%.4g", "ML"[min(i, 1)], x, y)
	}
	return path.String()
}
