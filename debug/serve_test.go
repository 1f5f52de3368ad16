package debug_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

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
	server := httptest.NewServer(h)
	defer server.Close()
	head, err := server.Client().Head(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer head.Body.Close()
	if body, err := io.ReadAll(head.Body); err != nil || len(body) != 0 || head.StatusCode != http.StatusOK ||
		head.ContentLength != int64(whole.Body.Len()) {
		t.Errorf("HEAD: %v, %d bytes, %v", head, len(body), err)
	}
}

func TestHeaders(t *testing.T) {
	h := newHandler(t, debug.Options{})
	debug.Register(h, "a", workqueue.NewTyped[string]())
	for _, query := range []string{"", "?queue=a", "?queue=none", "?format=json"} {
		w := get(h, query)
		for name, want := range map[string]string{
			"X-Frame-Options":              "DENY",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cache-Control":                "no-store",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s: %q", query, name, got)
			}
		}
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'",
			"form-action 'self'", "connect-src 'self'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: policy %q lacks %q", query, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("policy %q", policy)
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
	w = get(h, "?format=json&queue="+strings.Repeat("x", 1<<20))
	if w.Code != http.StatusNotFound || w.Body.Len() > 1000 {
		t.Errorf("status %d, %d bytes", w.Code, w.Body.Len())
	}
	wantBody(t, w, `{"error":"No queue xxx`)
}

// What actions need keeps its names: the ids of queues, the texts and ids of keys, and the number of a set.
func TestJSONOfActions(t *testing.T) {
	clock := newClock()
	h := newHandler(t, debug.Options{Clock: clock})
	q := newQueue[string](t, "orders", clock)
	debug.Register(h, "", q)
	q.Add("run")
	q.Get()
	fail(t, q, "fails\n")
	wantBody(t, get(h, "?format=json"), `"queues":[{"error":"","id":"orders","name":"orders",`)
	for _, query := range []string{"?queue=orders", "?queue=orders&state=failing"} {
		wantBody(t, get(h, query+"&format=json"), `{"key":"fails\\n","id":"9swsng","bytes":6,`)
	}
	for _, query := range []string{"?queue=orders&key=run", "?queue=orders&key=run&id=1ASo8w"} {
		wantBody(t, get(h, query+"&format=json"), `"keys":[{"key":"run","id":"1ASo8w",`, `"queue":{"error":"","id":"orders",`)
	}
	wantBody(t, get(h, "?queue=orders&count=failing"), `{"count":1,"more":false}`)
}

// A queue without metrics knows no times.
func TestQueueWithoutTimes(t *testing.T) {
	h := newHandler(t, debug.Options{Clock: newClock()})
	q := workqueue.NewTyped[int]()
	debug.Register(h, "plain", q)
	q.Add(1)
	wantBody(t, get(h, "?queue=plain"), "</b> adds a second in", "does not read the clock")
}

// Every page links to itself as JSON.
func TestFormat(t *testing.T) {
	h := newHandler(t, debug.Options{})
	debug.Register(h, "q", workqueue.NewTyped[string]())
	for query, link := range map[string]string{
		"?search=q":      `<a href="?format=json&amp;page=1&amp;search=q">JSON</a>`,
		"?queue=q&key=a": `<a href="?format=json&amp;key=a&amp;queue=q">JSON</a>`,
		"?queue=none":    "",
	} {
		wantBody(t, get(h, query), link)
		if w := get(h, query+"&format=json"); w.Header().Get("Content-Type") != "application/json" ||
			!json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %v %s", query, w.Header(), w.Body)
		}
	}
}
