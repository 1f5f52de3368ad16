package debug

import (
	"crypto/sha256"
	_ "embed"
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
	"most":    atMostText,
	"mean":    precise,
	"rate":    perSecondText,
	"stamp":   func(t time.Time) string { return t.Format(time.RFC3339Nano) },
	"href":    href,
	"plus":    func(a, b int) int { return a + b },
	"brief":   func(s string) string { return short(s, maxCauses) },
	"button":  func(action string) string { return buttons[action] },
	"latest":  latest,
	"clock":   func(t time.Time) string { return t.Format("15:04:05") + " UTC" },
}).Parse(pageHTML))

// href returns an address of the page, for names and values in turn. Only a key's value may be empty; others are left out.
func href(of ...any) string {
	v := make(url.Values)
	for i := 0; i < len(of); i += 2 {
		if of[i] == "key" || of[i+1] != "" {
			v.Set(of[i].(string), fmt.Sprint(of[i+1]))
		}
	}
	return "?" + v.Encode()
}

// latest returns causes, the last one first.
func latest(causes []workqueue.Cause) []workqueue.Cause {
	causes = slices.Clone(causes)
	slices.Reverse(causes)
	return causes
}
