package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The figure has two panels side by side, what a cycle of Add, Get and Done costs without metrics and with,
// over the number of keys, which are structs. Both axes are logarithmic.
const (
	panelLeft   = 52
	panelTop    = 64
	panelWidth  = 258
	panelHeight = 260
	panelPitch  = 368
	figWidth    = panelLeft + panelPitch + panelWidth + 70
	figHeight   = panelTop + panelHeight + 48
	leastTime   = 10 // ns
	mostTime    = 10_000
	mostKeys    = 1_000_000
)

var panels = []struct{ bench, title string }{
	{"Cycle", "without metrics"},
	{"CycleMetrics", "with Prometheus metrics"},
}

// strokes are how an implementation is drawn. Those that cannot see colours have the markers.
var strokes = []struct{ impl, class, marker string }{
	{fifo, "a", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"},
	{priority, "b", "M-4 -4h8v8h-8z"},
	{clientGo, "c", "M0 -5L5 4H-5z"},
	{runtimePQ, "d", "M0 -5L5 0L0 5L-5 0z"},
}

const figureStyle = `<style>
.t{fill:#24292f}.g{stroke:#24292f;stroke-opacity:.18}.l{fill:none;stroke-width:2}
.a{stroke:#0b62c4}.b{stroke:#10805f}.c{stroke:#c2410c}.d{stroke:#9a3bb5}
.m.a{fill:#0b62c4}.m.b{fill:#10805f}.m.c{fill:#c2410c}.m.d{fill:#9a3bb5}
@media (prefers-color-scheme:dark){
.t{fill:#e6edf3}.g{stroke:#e6edf3}
.a{stroke:#6cb2ff}.b{stroke:#4ccfa2}.c{stroke:#ff9a62}.d{stroke:#dd9cf0}
.m.a{fill:#6cb2ff}.m.b{fill:#4ccfa2}.m.c{fill:#ff9a62}.m.d{fill:#dd9cf0}
}
</style>
`

func figure(r *results) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc" font-family="system-ui, sans-serif" font-size="12">
<title id="title">Nanoseconds a key for Add, Get and Done, over the number of keys</title>
<desc id="desc">%s</desc>
`, figWidth, figHeight, figWidth, figHeight, description(r))
	b.WriteString(figureStyle)
	for i, s := range strokes {
		fmt.Fprintf(&b, `<g transform="translate(%d 16)"><path class="m %s" d="%s"/><text class="t" x="10" y="4">%s</text></g>
`, panelLeft+6+i*164, s.class, s.marker, s.impl)
	}
	for i, p := range panels {
		fmt.Fprintf(&b, "<g transform=\"translate(%d %d)\">\n", panelLeft+i*panelPitch, panelTop)
		fmt.Fprintf(&b, `<text class="t" x="%d" y="-14" text-anchor="middle" font-weight="bold">%s</text>
`, panelWidth/2, p.title)
		drawAxes(&b)
		drawLines(&b, r, p.bench)
		b.WriteString("</g>\n")
	}
	fmt.Fprintf(&b, `<text class="t" transform="translate(13 %d) rotate(-90)" text-anchor="middle">nanoseconds a key</text>
</svg>
`, panelTop+panelHeight/2)
	return b.String()
}

func drawAxes(b *strings.Builder) {
	for t := leastTime; t <= mostTime; t *= 10 {
		fmt.Fprintf(b, `<path class="g" d="M0 %.1fH%d"/><text class="t" x="-6" y="%.1f" text-anchor="end" font-size="10">%s</text>
`, timeY(float64(t)), panelWidth, timeY(float64(t))+3.5, thousands(fmt.Sprint(t)))
	}
	for n := 1; n <= mostKeys; n *= 10 {
		if n == 1 || math.Mod(math.Log10(float64(n)), 3) == 0 {
			fmt.Fprintf(b, `<text class="t" x="%.1f" y="%d" text-anchor="middle" font-size="10">%s</text>
`, keysX(n), panelHeight+15, thousands(fmt.Sprint(n)))
		}
		fmt.Fprintf(b, `<path class="g" d="M%.1f %dv4"/>
`, keysX(n), panelHeight)
	}
	fmt.Fprintf(b, `<text class="t" x="%d" y="%d" text-anchor="middle">keys</text>
`, panelWidth/2, panelHeight+34)
}

// drawLines draws a line for each implementation, and at its end the last value.
func drawLines(b *strings.Builder, r *results, bench string) {
	type label struct {
		y    float64
		text string
	}
	var labels []label
	for _, s := range strokes {
		var path, markers strings.Builder
		var last label
		command := 'M'
		for _, p := range points(r, bench, s.impl) {
			fmt.Fprintf(&path, "%c%.1f %.1f", command, keysX(p.keys), timeY(p.time))
			command = 'L'
			fmt.Fprintf(&markers, `<path class="m %s" transform="translate(%.1f %.1f)" d="%s"/>
`, s.class, keysX(p.keys), timeY(p.time), s.marker)
			last = label{timeY(p.time), number(p.time) + " ns"}
		}
		fmt.Fprintf(b, `<path class="l %s" d="%s"/>
%s`, s.class, path.String(), markers.String())
		labels = append(labels, last)
	}
	// From the top down, none over another.
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	free := math.Inf(-1)
	for _, l := range labels {
		y := max(l.y, free)
		free = y + 12
		fmt.Fprintf(b, `<text class="t" x="%d" y="%.1f" font-size="11">%s</text>
`, panelWidth+8, y+4, l.text)
	}
}

type point struct {
	keys int
	time float64
}

func points(r *results, bench, impl string) []point {
	var all []point
	for _, row := range r.rows[bench] {
		if keys, others := split(row); slices.Contains(others, parameter{"key", "struct"}) {
			all = append(all, point{keys, r.median(cell{bench, row, impl, "ns/key"})})
		}
	}
	return all
}

// description says what the figure shows, for those who do not see it.
func description(r *results) string {
	var sentences []string
	for _, p := range panels {
		for _, s := range strokes {
			all := points(r, p.bench, s.impl)
			if len(all) == 0 {
				continue
			}
			first, last := all[0], all[len(all)-1]
			sentences = append(sentences, fmt.Sprintf("%s %s: %s ns with %d key, %s ns with %s.", s.impl, p.title,
				number(first.time), first.keys, number(last.time), thousands(fmt.Sprint(last.keys))))
		}
	}
	return strings.Join(sentences, " ")
}

func keysX(n int) float64 {
	return panelWidth * math.Log10(float64(n)) / math.Log10(mostKeys)
}

func timeY(ns float64) float64 {
	return panelHeight * (1 - math.Log10(ns/leastTime)/math.Log10(mostTime/leastTime))
}
