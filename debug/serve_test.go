package debug_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
)

func TestOnlyGetAndHead(t *testing.T) {
	h := newHandler(t, debug.Options{Clock: newClock()})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"} {
		w := do(h, method, "/")
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" ||
			w.Header().Get("X-Frame-Options") == "" {
			t.Errorf("%s: status %d, header %v", method, w.Code, w.Header())
		}
	}
	whole := do(h, "GET", "/")
	w := do(h, "HEAD", "/")
	if w.Code != http.StatusOK || w.Body.Len() != 0 ||
		w.Header().Get("Content-Length") != strconv.Itoa(whole.Body.Len()) {
		t.Errorf("HEAD: status %d, %d bytes, header %v", w.Code, w.Body.Len(), w.Header())
	}
}

func TestHeaders(t *testing.T) {
	h := newHandler(t, debug.Options{})
	debug.Register(h, "a", workqueue.NewTyped[string]())
	for _, query := range []string{"", "?queue=a", "?queue=none"} {
		for _, accept := range []string{"text/html", "application/json"} {
			w := get(h, query, "Accept", accept)
			for name, want := range map[string]string{
				"X-Frame-Options":              "DENY",
				"X-Content-Type-Options":       "nosniff",
				"Referrer-Policy":              "no-referrer",
				"Cross-Origin-Resource-Policy": "same-origin",
				"Cross-Origin-Opener-Policy":   "same-origin",
				"Cache-Control":                "no-store",
				"Vary":                         "Accept",
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s %s: %s: %q", accept, query, name, got)
				}
			}
			policy := w.Header().Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'",
				"form-action 'self'", "connect-src 'self'"} {
				if !strings.Contains(policy, want) {
					t.Errorf("%s %s: policy %q lacks %q", accept, query, policy, want)
				}
			}
			if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
				t.Errorf("policy %q", policy)
			}
		}
	}
}

// What a browser runs is what the header has the hash of, and there is nothing else to run or to load.
func TestScriptAndStyleAreThoseOfThePolicy(t *testing.T) {
	h := newHandler(t, debug.Options{})
	debug.Register(h, "a", workqueue.NewTyped[string]())
	for _, query := range []string{"", "?queue=a", "?queue=none"} {
		w := get(h, query)
		for _, element := range []string{"script", "style"} {
			found := regexp.MustCompile(`(?s)<`+element+`[^>]*>(.*?)</`+element+
				`>`).FindAllStringSubmatch(w.Body.String(), -1)
			if len(found) != 1 {
				t.Fatalf("%s: %d elements %s", query, len(found), element)
			}
			sum := sha256.Sum256([]byte(found[0][1]))
			want := element + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
			if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, want) {
				t.Errorf("%s: policy %q lacks %s", query, policy, want)
			}
		}
		wantBody(t, w, `<noscript><meta http-equiv="refresh" content="5"></noscript>`)
		body := regexp.MustCompile(`(?s)<script>.*?</script>`).ReplaceAllString(w.Body.String(), "")
		if found := regexp.MustCompile(`(?i)\s(style|on\w+|src)=|https?:|url\(|@import`).FindAllString(body,
			-1); found != nil {
			t.Errorf("%s: the page has %q", query, found)
		}
	}
}

func TestAccept(t *testing.T) {
	h := newHandler(t, debug.Options{})
	for accept, isJSON := range map[string]bool{
		"":          false,
		"*/*":       false,
		"text/html": false,
		"text/html,application/xml;q=0.9,*/*;q=0.8": false,
		"application/json":                          true,
		"application/json, text/plain, */*":         true,
		"text/html;q=0.5, application/json":         true,
		"application/json;q=0.5, text/html":         false,
		"application/json;q=0":                      false,
		"application/json;q=many":                   false,
		"application/json; charset=utf-8":           true,
		"APPLICATION/JSON":                          true,
		"application/jsonp":                         false,
		",;,=":                                      false,
	} {
		w := get(h, "", "Accept", accept)
		if got := strings.HasPrefix(w.Body.String(), "{"); got != isJSON {
			t.Errorf("Accept: %s: JSON %t", accept, got)
		}
	}
	if w := get(h, "", "Accept", "text/plain", "Accept", "application/json"); !strings.HasPrefix(w.Body.String(),
		"{") {
		t.Error("only the first of two headers counts")
	}
}

// Links are relative to wherever the page is, so that it works under every path.
func TestMounting(t *testing.T) {
	h := newHandler(t, debug.Options{})
	debug.Register(h, "a", workqueue.NewTyped[string]())
	mux := http.NewServeMux()
	mux.Handle("/debug/workqueue", h)
	mux.Handle("/queues/", http.StripPrefix("/queues/", h))
	for _, path := range []string{"/debug/workqueue", "/queues/", "/queues/deeper/"} {
		w := do(mux, "GET", path)
		wantBody(t, w, `href="?queue=a"`)
		w = do(mux, "GET", path+"?queue=a")
		wantBody(t, w, `href="?"`, "<h1>a</h1>")
		for _, link := range regexp.MustCompile(`(href|action)="([^"]*)"`).FindAllStringSubmatch(w.Body.String(),
			-1) {
			if !strings.HasPrefix(link[2], "?") && !strings.HasPrefix(link[2], "#") && link[2] != "data:," {
				t.Errorf("%s: link to %q", path, link[2])
			}
		}
	}
	if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest("GET", "/debug/workqueue",
		nil)); pattern != "" {
		t.Errorf("the default mux has %q", pattern)
	}
}

func TestQueueThatIsNotThere(t *testing.T) {
	h := newHandler(t, debug.Options{})
	w := get(h, "?queue=%3Cscript%3Ex%00")
	if w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
	wantBody(t, w, "No queue &lt;script&gt;x\\x00 is registered")
	w = get(h, "?queue="+strings.Repeat("x", 1<<20), "Accept", "application/json")
	if w.Code != http.StatusNotFound || w.Body.Len() > 1000 {
		t.Errorf("status %d, %d bytes", w.Code, w.Body.Len())
	}
	wantBody(t, w, `{"error":"No queue xxx`)
}

// The documented fields, all of them, with a clock that stands still.
func TestJSON(t *testing.T) {
	clock := newClock()
	h := newHandler(t, debug.Options{Clock: clock})
	q := newQueue[string](t, "orders", clock)
	debug.Register(h, "", q)
	for _, k := range []string{"run", "next"} {
		q.Add(k)
	}
	if k, _ := q.Get(); k != "run" {
		t.Fatalf("got %q", k)
	}
	q.Add("run")
	q.Done("nobody's")
	q.AddRateLimited("fails\n")
	q.AddRateLimited("fails\n")
	clock.Step(2500 * time.Millisecond)

	queue := `{"id":"orders","name":"orders","queued":1,"blocked":0,"paused":false,"processing":1,"waiting":1,"adds":3,"retries":2,` +
		`"dropped":0,"unmatched_dones":1,"shutting_down":false,"timed":true,"oldest_queued_seconds":2.5,` +
		`"longest_running_seconds":2.5,"unfinished_work_seconds":2.5,` +
		`"last_minute":{"adds_per_second":1.2,"dones_per_second":0,"errors_per_second":0,"retries_per_second":0.8},"depth":[1],"pools":[]}`
	w := get(h, "", "Accept", "application/json")
	want := `{"time":"2026-11-20T09:14:05.5Z","registered":1,"matching":1,"queued":1,"processing":1,"waiting":1,` +
		`"failing":0,"given_up":0,"search":"","sort":"trouble","page":1,"pages":1,"sample_seconds":5,"queues":[` +
		queue + "]}\n"
	if got := w.Body.String(); got != want {
		t.Errorf("the list is\n%s, want\n%s", got, want)
	}
	w = get(h, "?queue=orders", "Accept", "application/json")
	want = `{"time":"2026-11-20T09:14:05.5Z","sample_seconds":5,"queue":` + queue +
		`,"latency":{"count":1,"mean_seconds":0,"p50_at_most_seconds":0.000001,"p90_at_most_seconds":0.000001,"p99_at_most_seconds":0.000001}` +
		`,"work":{"count":0,"mean_seconds":0}` +
		`,"recent":{"covers_seconds":2.5,"latency":{"count":1,"mean_seconds":0,"p50_at_most_seconds":0.000001,"p90_at_most_seconds":0.000001,"p99_at_most_seconds":0.000001},"work":{"count":0,"mean_seconds":0}}` +
		`,"history":{"adds_per_second":[1.2],"dones_per_second":[0],"errors_per_second":[0],"held":[0],"latency_mean_seconds":[null],` +
		`"processing":[1],"queued":[1],"retries_per_second":[0.8],"waiting":[1],"work_mean_seconds":[null]}` +
		`,"running":[{"key":"run","bytes":3,"since":"2026-11-20T09:14:03Z","for_seconds":2.5,"again":true,"requeues":0,"priority":0,"id":"1ASo8w"}]` +
		`,"queued":[{"key":"next","bytes":4,"since":"2026-11-20T09:14:03Z","for_seconds":2.5,"again":false,"requeues":0,"priority":0,"id":"vR1Cxg"}]` +
		`,"waiting":[{"key":"fails\\n","bytes":6,"since":"2026-11-20T09:14:03Z","for_seconds":2.5,"due":"2026-11-20T09:15:03Z","due_in_seconds":57.5,"again":false,"requeues":2,"priority":0,"id":"9swsng"}]` +
		`,"failing":[{"key":"fails\\n","bytes":6,"since":"2026-11-20T09:14:03Z","for_seconds":2.5,"due":"2026-11-20T09:15:03Z","due_in_seconds":57.5,"again":false,"requeues":2,"priority":0,"id":"9swsng"}],"given_up":[]` + "}\n"
	if got := w.Body.String(); got != want {
		t.Errorf("the queue is\n%s, want\n%s", got, want)
	}
}

// A queue without metrics knows no times, and an empty one has lists without keys.
func TestJSONWithoutTimes(t *testing.T) {
	h := newHandler(t, debug.Options{Clock: newClock()})
	q := workqueue.NewTyped[int]()
	debug.Register(h, "plain", q)
	w := get(h, "?queue=plain", "Accept", "application/json")
	wantBody(t, w, `"timed":false`, `"latency":null`, `"work":null`,
		`"running":[],"queued":[],"waiting":[],"failing":[],"given_up":[]`)
	q.Add(1)
	w = get(h, "?queue=plain", "Accept", "application/json")
	wantBody(t, w, `"queued":[{"key":"1","bytes":1,"again":false,"requeues":0,"priority":0,"id":"`)
	wantBody(t, get(h, "?queue=plain"), "does not read the clock")
}

// format=json is for those who cannot set a header, and every page links to it.
func TestFormat(t *testing.T) {
	h := newHandler(t, debug.Options{Clock: newClock()}) // so that two answers have the same time
	q := workqueue.NewTyped[string]()
	debug.Register(h, "q", q)
	q.Add("a")
	for query, link := range map[string]string{
		"?search=q&sort=name": `<a href="?format=json&amp;page=1&amp;search=q&amp;sort=name">JSON</a>`,
		"?queue=q&keys=7":     `<a href="?format=json&amp;keys=7&amp;queue=q">JSON</a>`,
		"?queue=q&key=a":      `<a href="?format=json&amp;key=a&amp;queue=q">JSON</a>`,
	} {
		wantBody(t, get(h, query), link)
		w := get(h, query+"&format=json", "Accept", "text/html")
		if w.Header().Get("Content-Type") != "application/json" ||
			w.Body.String() != get(h, query, "Accept", "application/json").Body.String() {
			t.Errorf("%s: %v %s", query, w.Header(), w.Body)
		}
	}
	if w := get(h, "?format=html", "Accept",
		"application/json"); !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Errorf("format=html: %v", w.Header())
	}
	if w := get(h, "?queue=none&format=json"); w.Code != 404 ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
