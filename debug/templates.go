package debug

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

var (
	//go:embed templates/*.html
	templateFiles embed.FS
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// pages has the template of each page. A page's file fills in the blocks of the layout.
var pages = func() map[string]*template.Template {
	parts := template.Must(template.New("layout").Funcs(functions).ParseFS(templateFiles,
		"templates/layout.html", "templates/section.html", "templates/row.html", "templates/story.html",
		"templates/chart.html", "templates/lists.html", "templates/pools.html"))
	all := make(map[string]*template.Template)
	for _, page := range []string{"list", "queue", "keys", "key", "gone"} {
		all[page] = template.Must(template.Must(parts.Clone()).ParseFS(templateFiles, "templates/"+page+".html"))
	}
	return all
}()

var functions = template.FuncMap{
	"css":    func() template.CSS { return template.CSS(pageCSS) },
	"js":     func() template.JS { return template.JS(pageJS) },
	"number": number,
	"plural": plural,
	"human":  human,
	"level":  level,
	"span":   span,
	"sub":    sub,
	"cell":   newCell,
	"tile":   newTile,
	"rate":   perSecondText,
	"href":   href,
	"name":   func(s string) string { return called(short(s, maxName)) },
	"text":   func(s string) string { return short(s, maxError) },
	"brief":  func(s string) string { return short(s, maxCauses) },
	"latest": slices.Backward[[]workqueue.Cause],
	"date":   func(t time.Time) string { return t.Format("2006-01-02 15:04:05") + " UTC" },
	"clock":  func(t time.Time) string { return t.Format("15:04:05") + " UTC" },
}

// cell is a number in a table, or a tile above it. Class is how much it deserves attention: bad, warn, none
// or "". Href is what a tile links to.
type cell struct{ Label, Text, Class, Href string }

// newCell returns a cell with a number or a text. It has the class, if one is given, unless there is nothing.
func newCell(label string, value any, class ...string) cell {
	c := cell{Label: label, Text: number(value), Class: "none"}
	if c.Text != "0" && c.Text != "–" {
		c.Class = strings.Join(class, "")
	}
	return c
}

// newTile is newCell for a tile, which nothing makes pale.
func newTile(label, href string, value any, class ...string) cell {
	c := newCell(label, value, class...)
	if c.Href = href; c.Class == "none" {
		c.Class = ""
	}
	return c
}

// sub returns the time from b to a, or 0 if one is not known.
func sub(a, b time.Time) time.Duration {
	if a.IsZero() || b.IsZero() {
		return 0
	}
	return a.Sub(b)
}

// span is sub for display, with a dash if it is not known.
func span(a, b time.Time) string {
	if a.IsZero() || b.IsZero() {
		return "–"
	}
	return human(a.Sub(b))
}

// href returns an address of the page, for names and values in turn. It leaves out empty values, but not an
// empty key.
func href(of ...any) string {
	v := make(url.Values)
	for i := 0; i < len(of); i += 2 {
		if of[i+1] != "" || of[i] == "key" {
			v.Set(of[i].(string), fmt.Sprint(of[i+1]))
		}
	}
	return "?" + v.Encode()
}

// contentSecurityPolicy lets in our own script and style alone, which it knows by their hashes, and the empty
// icon.
var contentSecurityPolicy = "default-src 'none'; img-src data:; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; " +
	"script-src " + hashSource(pageJS) + "; style-src " + hashSource(pageCSS)

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
