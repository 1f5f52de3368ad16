package debug

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// refreshSeconds is how often a page that is looked at asks for itself.
const refreshSeconds = 5

// contentSecurityPolicy lets in our own script and style alone, which it knows by their hashes.
var contentSecurityPolicy = strings.Join([]string{
	"default-src 'none'",
	"script-src " + hashSource(pageJS),
	"style-src " + hashSource(pageCSS),
	"img-src data:", // the empty icon
	"connect-src 'self'",
	"form-action 'self'",
	"base-uri 'none'",
	"frame-ancestors 'none'",
}, "; ")

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

var pages = template.Must(template.New("pages").Funcs(template.FuncMap{
	"css":     func() template.CSS { return template.CSS(pageCSS) },
	"js":      func() template.JS { return template.JS(pageJS) },
	"refresh": func() int { return refreshSeconds },
	"orders":  func() []order { return orders },
	"number":  number,
	"human":   func(s seconds) string { return human(time.Duration(s)) },
	"level":   level,
	"most":    most,
	"mean":    func(s float64) string { return human(time.Duration(s * float64(time.Second))) },
	"stamp":   func(t time.Time) string { return t.Format(time.RFC3339Nano) },
	"clock":   func(t time.Time) string { return t.Format("15:04:05") + " UTC" },
	"line":    newLine,
	"section": newSection,
}).Parse(pageHTML))

// Href returns the address of another page of the same list.
func (r *listReport) Href(page int) string {
	v := url.Values{"sort": {r.Sort}, "page": {strconv.Itoa(page)}}
	if r.Search != "" {
		v.Set("search", r.Search)
	}
	return "?" + v.Encode()
}

// Previous and Next are the pages beside this one.
func (r *listReport) Previous() int { return r.Page - 1 }
func (r *listReport) Next() int     { return r.Page + 1 }

// Span is how long the lines are.
func (r *listReport) Span() seconds { return r.SampleEvery * historyLen }

// Title is how the order is called on the page.
func (o order) Title() string { return o.title }

// Name is what the order is asked for with.
func (o order) Name() string { return o.name }

// Href returns the address of the queue's page.
func (q queueReport) Href() string { return "?" + url.Values{"queue": {q.ID}}.Encode() }

// HrefAll returns the address of the same page with as many keys as can be had, or "" if that is this one.
func (r *detailReport) HrefAll() string {
	longest := max(len(r.Running), len(r.Queued), len(r.Waiting), len(r.Failing))
	if r.limit == maxKeys || longest < r.limit {
		return ""
	}
	return "?" + url.Values{"queue": {r.Queue.ID}, "keys": {strconv.Itoa(maxKeys)}}.Encode()
}

// section is a list of keys on a queue's page.
type section struct {
	Kind, Title, Hint, Empty string
	Keys                     []keyReport
	// Total is the number of keys in that state, or -1 if nobody knows.
	Total int
}

func newSection(kind string, r *detailReport) section {
	switch kind {
	case "running":
		hint := "held by workers, longest first"
		if !r.Queue.Timed {
			hint = "held by workers, in no order"
		}
		return section{kind, "Running", hint, "No worker holds a key.", r.Running, r.Queue.Processing}
	case "queued":
		return section{kind, "Head of the line", "wait for a worker, next first", "No key waits for a worker.", r.Queued, r.Queue.Queued}
	case "waiting":
		return section{kind, "Waiting", "wait for their time, next due first", "No key waits for its time.", r.Waiting, r.Queue.Waiting}
	default:
		return section{kind, "Failing", "most requeues first", "No key has failed, as far as the limiter tells.", r.Failing, -1}
	}
}

// line is a history as it is drawn: in a box of lineWidth by lineHeight, with now at the right edge.
type line struct {
	Path, Area, Label string
	Max               uint32
	Span              string
}

const (
	lineWidth  = 240
	lineHeight = 40
)

func newLine(depth []uint32, every seconds) line {
	top := slices.Max(depth)
	span := human(time.Duration(every) * historyLen)
	now := depth[len(depth)-1]
	l := line{
		Max:   top,
		Span:  span,
		Label: fmt.Sprintf("Queued over the last %s: now %s, at most %s", span, number(now), number(top)),
	}
	var path strings.Builder
	for i, n := range depth {
		x := lineWidth * (historyLen - float64(len(depth)-1-i)) / historyLen
		// A pixel is left above and below, so that the stroke is not cut.
		y := lineHeight - 1 - (lineHeight-2)*float64(n)/float64(max(top, 1))
		fmt.Fprintf(&path, "%.4g,%.4g ", x, y)
	}
	l.Path = strings.TrimSpace(path.String())
	first := lineWidth * (historyLen - float64(len(depth)-1)) / historyLen
	l.Area = fmt.Sprintf("%.4g,%d %s %d,%d", first, lineHeight, l.Path, lineWidth, lineHeight)
	return l
}

// level tells how much a time deserves to be looked at.
func level(s seconds) string {
	switch d := time.Duration(s); {
	case d >= 10*time.Minute:
		return "bad"
	case d >= time.Minute:
		return "warn"
	case d == 0:
		return "none"
	default:
		return ""
	}
}

// most returns a bound for people.
func most(bound *float64) string {
	if bound == nil {
		return "beyond all bounds"
	}
	return "≤ " + human(time.Duration(*bound*float64(time.Second)))
}

// number returns n with its thousands apart.
func number(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// human returns d in one or two units.
func human(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d/time.Microsecond)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Truncate(100*time.Millisecond).Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return twoUnits(d, time.Minute, "m", time.Second, "s")
	case d < 2*day:
		return twoUnits(d, time.Hour, "h", time.Minute, "m")
	default:
		return twoUnits(d, day, "d", time.Hour, "h")
	}
}

func twoUnits(d, large time.Duration, l string, small time.Duration, s string) string {
	if rest := d % large / small; rest > 0 {
		return fmt.Sprintf("%d%s %02d%s", d/large, l, rest, s)
	}
	return fmt.Sprintf("%d%s", d/large, l)
}
