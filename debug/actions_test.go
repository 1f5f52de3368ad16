package debug_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// post asks for an action as the page does, and returns the status and the error of the answer.
func post(t *testing.T, h http.Handler, header []string, form ...string) (status int, failure string) {
	t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	r := httptest.NewRequest("POST", "http://internal:8080/debug/workqueue", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var answer struct{ Error string }
	if w.Code != http.StatusMethodNotAllowed {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
	}
	return w.Code, answer.Error
}

// asPage are the headers that a browser sends for the page's own script.
var asPage = []string{"X-Workqueue-Action", "1", "Sec-Fetch-Site", "same-origin", "Origin", "http://internal:8080"}

// audited collects actions.
type audited struct{ actions []debug.Action }

func (a *audited) hook(r *http.Request, action debug.Action) {
	if r == nil {
		panic("without its request")
	}
	a.actions = append(a.actions, action)
}

func (a *audited) last() debug.Action { return a.actions[len(a.actions)-1] }

func newPausable(t *testing.T, h *debug.Handler) *priorityqueue.Queue[string] {
	q := priorityqueue.New(priorityqueue.Config[string]{
		Name: "q", MetricsProvider: h,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
	})
	t.Cleanup(q.ShutDown)
	return q
}

func TestActions(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	q := newPausable(t, h)
	q.AddRateLimited("fails")
	q.AddAfter("later", time.Hour)
	q.Add("queued")

	do := func(want int, form ...string) {
		t.Helper()
		before := len(audit.actions)
		status, failure := post(t, h, asPage, append([]string{"queue", "q"}, form...)...)
		if status != want || (failure == "") != (want == http.StatusOK) {
			t.Errorf("%v: %d %q, want %d", form, status, failure, want)
		}
		if len(audit.actions) != before+1 || (audit.last().Err == nil) != (want == http.StatusOK) || audit.last().Name != form[1] || audit.last().Queue != "q" {
			t.Errorf("%v: the audit got %+v", form, audit.actions[before:])
		}
	}
	do(200, "action", "retry", "key", "fails")
	if audit.last().Key != "fails" {
		t.Errorf("%+v", audit.last())
	}
	if s := q.Stats(); s.Queued != 2 || s.Waiting != 1 {
		t.Errorf("after retry: %+v", s)
	}
	do(200, "action", "remove", "key", "later")
	do(200, "action", "remove", "key", "fails")
	if s := q.Stats(); s.Queued != 1 || s.Waiting != 0 || q.NumRequeues("fails") != 0 {
		t.Errorf("after remove: %+v, %d requeues", s, q.NumRequeues("fails"))
	}
	do(404, "action", "remove", "key", "later")
	do(404, "action", "retry", "key", "nothing like that")
	do(404, "action", "retry", "key", "queue") // a part of a key is not a key
	do(400, "action", "explode")
	do(200, "action", "pause")
	got := make(chan string, 1)
	go func() {
		key, _ := q.Get()
		got <- key
	}()
	select {
	case key := <-got:
		t.Errorf("a paused queue handed out %q", key)
	case <-time.After(20 * time.Millisecond):
	}
	do(200, "action", "resume")
	if key := <-got; key != "queued" {
		t.Errorf("got %q", key)
	}
	if status, _ := post(t, h, asPage, "queue", "none", "action", "pause"); status != 404 {
		t.Errorf("a queue that is not there: %d", status)
	}
	// A key with the same text as another one is left alone.
	long := strings.Repeat("x", 300)
	q.Add(long + "a")
	q.Add(long + "b")
	do(409, "action", "remove", "key", long[:256])
	do(200, "action", "remove", "key", long+"a")
	wantBody(t, get(h, "?queue=q"), `data-action="pause"`, `data-action="remove" data-queue="q" data-key="xxx`)
}

// What a queue cannot do is neither offered nor done.
func TestActionsOfAFIFO(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Hour, time.Hour))
	t.Cleanup(q.ShutDown)
	debug.Register(h, "q", q)
	q.AddRateLimited(17)
	for _, action := range []string{"remove", "pause", "resume"} {
		if status, _ := post(t, h, asPage, "queue", "q", "action", action, "key", "17"); status != 400 {
			t.Errorf("%s: %d", action, status)
		}
	}
	body := get(h, "?queue=q").Body.String()
	if strings.Contains(body, `data-action="remove"`) || strings.Contains(body, `data-action="pause"`) || !strings.Contains(body, `data-action="retry"`) {
		t.Error("the page offers what cannot be done, or lacks what can be")
	}
	if status, _ := post(t, h, asPage, "queue", "q", "action", "retry", "key", "17"); status != 200 || q.Len() != 1 {
		t.Errorf("retry: %d, %d queued", status, q.Len())
	}
}

// A queue that is shut down takes no key: the page does not offer that, and the answer says so.
func TestRetryAfterShutDown(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	q := newPausable(t, h)
	q.Add("queued")
	q.Get()
	q.AddRateLimited("queued")
	q.ShutDown()
	if status, failure := post(t, h, asPage, "queue", "q", "action", "retry", "key", "queued"); status != 409 || !strings.Contains(failure, "shut down") || audit.last().Err == nil {
		t.Errorf("%d %q, audited %+v", status, failure, audit.last())
	}
	if body := get(h, "?queue=q").Body.String(); strings.Contains(body, `data-action="retry"`) || !strings.Contains(body, "shutting down") {
		t.Error("the page offers to retry a key")
	}
}

// Every key that a queue can have can be found, retried and removed: the empty text and nil, too.
func TestUnusualKeys(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	q := priorityqueue.New(priorityqueue.Config[any]{Name: "q", MetricsProvider: h})
	defer q.ShutDown()
	fifo := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[any]{Name: "fifo", MetricsProvider: h})
	defer fifo.ShutDown()
	for text, key := range map[string]any{"": "", "<nil>": nil, "17": 17} {
		for name, q := range map[string]workqueue.TypedRateLimitingInterface[any]{"q": q, "fifo": fifo} {
			q.AddAfter(key, time.Hour)
			if s := find(t, h, name, text); len(s.Found.Keys) != 1 || !s.Found.Exact || s.Found.Keys[0].State != "waiting" {
				t.Errorf("%s, %q: %+v", name, text, s.Found)
			}
			if status, failure := post(t, h, asPage, "queue", name, "action", "retry", "key", text); status != 200 {
				t.Errorf("%s, retry %q: %d %s", name, text, status, failure)
			}
			if got, _ := q.Get(); got != key {
				t.Errorf("%s: got %v", name, got)
			}
			q.Done(key)
		}
		q.Add(key)
		if status, failure := post(t, h, asPage, "queue", "q", "action", "remove", "key", text); status != 200 || q.Len() != 0 {
			t.Errorf("remove %q: %d %s", text, status, failure)
		}
	}
	q.Add("not empty")
	if s := find(t, h, "q", ""); len(s.Found.Keys) != 0 || s.Found.Exact {
		t.Errorf("every text contains the empty one: %+v", s.Found)
	}
	wantBody(t, get(h, "?queue=q&key="), "<code>(empty)</code>")
	if status, _ := post(t, h, asPage, "queue", "q", "action", "retry"); status != 400 {
		t.Errorf("without a key: %d", status)
	}
}

// No other site can have a browser do something here: neither with a form nor with a script.
func TestActionsFromElsewhere(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	q := newPausable(t, h)
	q.Add("a")
	for name, header := range map[string][]string{
		"a form of another site":             {"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"},
		"a script of another site":           {"X-Workqueue-Action", "1", "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"},
		"a site beside this one":             {"X-Workqueue-Action", "1", "Sec-Fetch-Site", "same-site", "Origin", "http://other.internal"},
		"an old browser":                     {"X-Workqueue-Action", "1", "Origin", "https://evil.example"},
		"a sandbox":                          {"X-Workqueue-Action", "1", "Origin", "null"},
		"another port":                       {"X-Workqueue-Action", "1", "Origin", "http://internal:9090"},
		"without the header":                 {"Sec-Fetch-Site", "same-origin", "Origin", "http://internal:8080"},
		"a form that looks like our own":     {"Sec-Fetch-Site", "none"},
		"a browser that says nothing at all": {},
	} {
		before := len(audit.actions)
		status, _ := post(t, h, header, "queue", "q", "action", "remove", "key", "a")
		if status != http.StatusForbidden || q.Len() != 1 {
			t.Fatalf("%s: status %d, %d keys", name, status, q.Len())
		}
		if len(audit.actions) != before+1 || audit.last().Err == nil {
			t.Errorf("%s: the audit got %+v", name, audit.actions[before:])
		}
	}
	// Scripts of other sites may send the header only if we say so to an OPTIONS request, which we do not.
	w := do(h, "OPTIONS", "/", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-workqueue-action")
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Access-Control-Allow-Origin") != "" || w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("OPTIONS: %d %v", w.Code, w.Header())
	}
	// An action in the address does nothing, with whatever method.
	get(h, "?queue=q&action=remove&key=a", asPage...)
	if do(h, "POST", "/?queue=q&action=remove&key=a", asPage[:2]...); q.Len() != 1 {
		t.Error("an address removed a key")
	}
	// A program that is no browser sends no Origin. It needs the header.
	if status, _ := post(t, h, []string{"X-Workqueue-Action", "1"}, "queue", "q", "action", "remove", "key", "a"); status != 200 || q.Len() != 0 {
		t.Errorf("as curl does: %d", status)
	}
}

func TestActionsAreOff(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Audit: audit.hook})
	q := newPausable(t, h)
	q.Add("a")
	if status, _ := post(t, h, asPage, "queue", "q", "action", "remove", "key", "a"); status != http.StatusMethodNotAllowed || q.Len() != 1 {
		t.Errorf("status %d", status)
	}
	if body := get(h, "?queue=q").Body.String(); strings.Contains(body, `data-action=`) {
		t.Error("the page offers actions")
	}
	if len(audit.actions) != 0 {
		t.Errorf("%+v", audit.actions)
	}
}

// A queue that panics is not the end of the program, and a hook gets texts that are fit for a log.
func TestActionThatPanics(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	debug.Register(h, "broken", broken{workqueue.NewTyped[int]()})
	if status, _ := post(t, h, asPage, "queue", "broken", "action", "retry", "key", "1"); status != 500 || audit.last().Err == nil {
		t.Errorf("%d %+v", status, audit.last())
	}
	post(t, h, asPage, "queue", "no\nsuch", "action", strings.Repeat("x", 1000), "key", "\x1b[31m")
	if a := audit.last(); a.Queue != `no\nsuch` || a.Key != `\x1b[31m` || len(a.Name) > 140 || a.Err == nil {
		t.Errorf("%+v", a)
	}
	if status, failure := post(t, h, asPage, "queue", "broken", "key", strings.Repeat("x", 100_000)); status != 400 || !strings.Contains(failure, "form") {
		t.Errorf("a long form: %d %q", status, failure)
	}
	h.InspectQueue("panics", workqueue.Inspector{
		Stats: func() workqueue.Stats { return workqueue.Stats{} }, Pause: func() { panic("pause") },
	})
	if status, failure := post(t, h, asPage, "queue", "panics", "action", "pause"); status != 500 || !strings.Contains(failure, "panicked") {
		t.Errorf("a pause that panics: %d %q", status, failure)
	}
	if !slices.ContainsFunc(audit.actions, func(a debug.Action) bool { return a.Err != nil && strings.Contains(a.Err.Error(), "panicked") }) {
		t.Errorf("%+v", audit.actions)
	}
}
