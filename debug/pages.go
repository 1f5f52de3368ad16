package debug

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
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
	"most":    atMostText,
	"mean":    precise,
	"rate":    perSecondText,
	"stamp":   func(t time.Time) string { return t.Format(time.RFC3339Nano) },
	"clock":   func(t time.Time) string { return t.Format("15:04:05") + " UTC" },
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

// Href returns the address of the queue's page.
func (q queueReport) Href() string { return "?" + url.Values{"queue": {q.ID}}.Encode() }

// HrefAll returns the address of the same page with as many keys as can be had, or "" if that is this one.
func (r *detailReport) HrefAll() string {
	longest := 0
	for _, keys := range r.all() {
		longest = max(longest, len(*keys))
	}
	if r.limit == maxKeys || longest < r.limit {
		return ""
	}
	return "?" + url.Values{"queue": {r.Queue.ID}, "keys": {strconv.Itoa(maxKeys)}}.Encode()
}

// HrefJSON returns the address of the list as JSON.
func (r *listReport) HrefJSON() string { return r.Href(r.Page) + "&format=json" }

// HrefJSON returns the address of the same as JSON.
func (r *detailReport) HrefJSON() string {
	v := url.Values{"queue": {r.Queue.ID}, "format": {"json"}}
	if r.Found != nil {
		v.Set("key", r.Found.Search)
	} else if r.limit != someKeys {
		v.Set("keys", strconv.Itoa(r.limit))
	}
	return "?" + v.Encode()
}

// Refresh is after how many seconds the page asks for itself, or 0 if that would be a search among all keys.
func (r *detailReport) Refresh() int {
	if r.Found != nil && !r.Found.cheap {
		return 0
	}
	return refreshSeconds
}

// HasErrors reports whether there may be errors of failing keys.
func (r *detailReport) HasErrors() bool {
	return len(r.Queue.Pools) > 0 || slices.ContainsFunc(r.Failing, func(k keyReport) bool { return k.Error != "" })
}

// section is a list of keys on a queue's page.
type section struct {
	Kind, Title, Hint, Empty string
	Keys                     []keyReport
	// Total is the number of keys in that state, or -1 if it is not known.
	Total int
	// Prioritized reports that some of them have a priority other than 0.
	Prioritized bool
	// Attempts reports that it is known how often each of them was handled.
	Attempts bool
	// Queue is the id of the queue, and Actions what can be done with each key.
	Queue   string
	Actions actionSet
}

func newSection(kind string, r *detailReport) section {
	s := section{Kind: kind, Total: -1, Queue: r.Queue.ID, Actions: r.Actions}
	workers := r.Queue.Workers
	switch kind {
	case "running":
		s.Title, s.Hint, s.Empty = "Running", "held by workers, longest first", "No worker holds a key."
		if !r.Queue.Timed && len(r.Queue.Pools) == 0 {
			s.Hint = "held by workers, in no order"
		}
		s.Keys, s.Total = r.Running, max(r.Queue.Processing, workers.Busy)
		s.Actions, s.Attempts = actionSet{}, len(r.Queue.Pools) > 0
	case "queued":
		s.Title, s.Hint, s.Empty = "Head of the line", "wait for a worker, next first", "No key waits for a worker."
		s.Keys, s.Total = r.Queued, r.Queue.Queued
		s.Actions.Retry = false
	case "waiting":
		s.Title, s.Hint, s.Empty = "Waiting", "wait for their time, next due first", "No key waits for its time."
		s.Keys, s.Total = r.Waiting, r.Queue.Waiting
	case "given-up":
		s.Title, s.Hint, s.Empty = "Given up", "will not come again by themselves, the last one first", "No key is given up."
		s.Keys, s.Total = r.GivenUp, r.Queue.GivenUp
		s.Actions.Remove = false
	default:
		s.Title, s.Hint, s.Empty = "Failing", "the last failure first", "No key is failing."
		s.Keys = r.Failing
		if len(r.Queue.Pools) > 0 {
			s.Total = max(workers.Failing, len(r.Failing))
		} else {
			s.Hint, s.Empty = "most requeues first", "No key has failed, as far as the limiter knows."
		}
		if r.failingUnlisted && len(s.Keys) == 0 {
			s.Empty = "Cannot be listed: the queue's limiter counts failures and does not list its keys. The other lists show the requeues of theirs."
		}
	}
	s.Prioritized = prioritized(s.Keys)
	return s
}

func prioritized(keys []keyReport) bool {
	return slices.ContainsFunc(keys, func(k keyReport) bool { return k.Priority != 0 })
}

// AnyAction reports whether something can be done with the keys.
func (s section) AnyAction() bool { return s.Actions.Retry || s.Actions.Remove }

// row is a key in a section.
type row struct {
	keyReport
	section
}

// Rows returns the keys with what the rows of a table need beside them.
func (s section) Rows() []row {
	all := make([]row, len(s.Keys))
	for i, k := range s.Keys {
		all[i] = row{k, s}
	}
	return all
}

// HrefKey returns the address of what is known of one key.
func (r row) HrefKey() string { return "?" + url.Values{"queue": {r.Queue}, "key": {r.Key}}.Encode() }

// FoundRows returns the keys that a search has found, as rows.
func (r *detailReport) FoundRows() []row {
	s := section{Kind: "found", Keys: r.Found.Keys, Queue: r.Queue.ID, Actions: r.Actions, Prioritized: prioritized(r.Found.Keys)}
	return s.Rows()
}

// StateText is the key's state for people.
func (k keyReport) StateText() string {
	switch k.State {
	case "processing":
		return "running"
	case "given_up":
		return "given up"
	}
	return k.State
}
