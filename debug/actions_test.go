package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// answered is the answer to a request for an action.
type answered struct {
	Action, Text, Error string
	Keys, Gone, Left    int
	LeftMore            bool `json:"left_more"`
}

// post asks for an action.
func post(t *testing.T, h http.Handler, header []string, form ...string) (status int, answer answered) {
	t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Add(form[i], form[i+1])
	}
	r := httptest.NewRequest("POST", "http://internal:8080/debug/workqueue", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
	}
	return w.Code, answer
}

// asPage are the headers that a browser sends for the page's own script.
var asPage = []string{"X-Workqueue-Action", "1", "Sec-Fetch-Site", "same-origin", "Origin", "http://internal:8080"}

// audited is a handler with actions, and what it has reported.
type audited struct {
	*debug.Handler
	actions []debug.Action
}

func newAudited(t *testing.T) *audited {
	a := new(audited)
	a.Handler = newHandler(t, debug.Options{Actions: true, Audit: func(r *http.Request, action debug.Action) {
		if r == nil {
			t.Error("an action without its request")
		}
		a.actions = append(a.actions, action)
	}})
	return a
}

func (a *audited) last() debug.Action { return a.actions[len(a.actions)-1] }

// act asks for an action on a queue as the page does. It asserts the answer's status, and that the action is
// reported once.
func (a *audited) act(t *testing.T, want int, queue string, form ...string) answered {
	t.Helper()
	before := len(a.actions)
	status, answer := post(t, a, asPage, append([]string{"queue", queue, "action"}, form...)...)
	if status != want || (answer.Error == "") != (want == http.StatusOK) {
		t.Errorf("%q: %d %+v, want %d", form, status, answer, want)
	}
	if len(a.actions) != before+1 || (a.last().Err == nil) != (want == http.StatusOK) || a.last().Name != form[0] || a.last().Queue != queue {
		t.Errorf("%q: the audit got %+v", form, a.actions[before:])
	}
	return answer
}

func newPriorityQueue(t *testing.T, h workqueue.StatsProvider, name string) *priorityqueue.Queue[string] {
	q := priorityqueue.New(priorityqueue.Config[string]{
		Name: name, MetricsProvider: h,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
	})
	t.Cleanup(q.ShutDown)
	return q
}

func TestActions(t *testing.T) {
	h := newAudited(t)
	q := newPriorityQueue(t, h, "q")
	q.AddRateLimited("fails")
	q.AddAfter("later", time.Hour)
	q.Add("queued")

	h.act(t, 200, "q", "retry", "key", "fails")
	if s := q.Stats(); h.last().Key != "fails" || s.Queued != 2 || s.Waiting != 1 {
		t.Errorf("after retry: %+v, audited %+v", s, h.last())
	}
	h.act(t, 200, "q", "remove", "key", "later")
	h.act(t, 200, "q", "remove", "key", "fails")
	if s := q.Stats(); s.Queued != 1 || s.Waiting != 0 || q.NumRequeues("fails") != 0 {
		t.Errorf("after remove: %+v, %d requeues", s, q.NumRequeues("fails"))
	}
	h.act(t, 404, "q", "remove", "key", "later")
	h.act(t, 404, "q", "retry", "key", "nothing like that")
	h.act(t, 404, "q", "retry", "key", "queue") // a part of a key is not a key
	for _, form := range [][]string{{"retry"}, {"forget"}, {"remove"}, {"remove", "of", "failing"}} {
		if a := h.act(t, 400, "q", form...); !strings.Contains(a.Error, "lacks the field key") {
			t.Errorf("%v: %+v", form, a)
		}
	}
	if a := h.act(t, 400, "q", "explode"); !strings.Contains(a.Error, "no such action") {
		t.Errorf("%+v", a)
	}
	h.act(t, 404, "none", "pause")
	h.act(t, 200, "q", "pause")
	if s := q.Stats(); !s.Paused {
		t.Errorf("after pause: %+v", s)
	}
	h.act(t, 200, "q", "resume")
	if s := q.Stats(); s.Paused {
		t.Errorf("after resume: %+v", s)
	}
	// A key with the same text as another one is left alone.
	long := strings.Repeat("x", 300)
	q.Add(long + "a")
	q.Add(long + "b")
	if status, _ := post(t, h, asPage, "queue", "q", "action", "remove", "key", long[:256]); status != 409 || q.Len() != 3 {
		t.Errorf("two keys that look alike: %d", status)
	}
	h.act(t, 200, "q", "remove", "key", long+"a")
	alike := priorityqueue.New(priorityqueue.Config[lossy]{Name: "alike", MetricsProvider: h})
	defer alike.ShutDown()
	for n := range lossy(1000) { // The first and the last one: the latter is in none of the page's lists.
		alike.Add(n)
	}
	if h.act(t, 409, "alike", "remove", "key", "same"); alike.Len() != 1000 {
		t.Errorf("one of two keys with one text was removed")
	}
	wantBody(t, get(h, "?queue=q"), `data-action="pause"`, `data-action="remove" data-queue="q" data-key="xxx`)
}

// lossy has a text that does not distinguish 0 from 999.
type lossy int

func (n lossy) String() string {
	if n%999 == 0 {
		return "same"
	}
	return strconv.Itoa(int(n))
}

// What a queue cannot do is neither offered nor done.
func TestActionsOfAFIFO(t *testing.T) {
	h := newAudited(t)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Hour, time.Hour))
	t.Cleanup(q.ShutDown)
	debug.Register(h.Handler, "q", q)
	q.AddRateLimited(17)
	for _, action := range []string{"remove", "pause", "resume"} {
		h.act(t, 400, "q", action, "key", "17")
	}
	body := get(h, "?queue=q").Body.String()
	if strings.Contains(body, `data-action="remove"`) || strings.Contains(body, `data-action="pause"`) || !strings.Contains(body, `data-action="retry"`) {
		t.Error("the page offers what cannot be done, or lacks what can be")
	}
	if h.act(t, 200, "q", "retry", "key", "17"); q.Len() != 1 {
		t.Errorf("after retry %d are queued", q.Len())
	}
}

// A queue that is shut down takes no key and cannot be paused: the page does not offer that, and the answers say
// so.
func TestActionsAfterShutDown(t *testing.T) {
	h := newAudited(t)
	q := newPriorityQueue(t, h, "q")
	q.Add("queued")
	q.Get()
	q.AddRateLimited("queued")
	q.ShutDown()
	if a := h.act(t, 409, "q", "retry", "key", "queued"); !strings.Contains(a.Error, "shut down") {
		t.Errorf("%+v", a)
	}
	if body := get(h, "?queue=q").Body.String(); strings.Contains(body, `data-action="retry"`) || !strings.Contains(body, "shutting down") {
		t.Error("the page offers to retry a key")
	}
	for _, action := range []string{"pause", "pause_group"} {
		if a := h.act(t, 409, "q", action, "group", "g"); !strings.Contains(a.Error, "shut down") {
			t.Errorf("%s: %+v", action, a)
		}
	}
}

// No other site can have a browser do something here: neither with a form nor with a script.
func TestActionsFromElsewhere(t *testing.T) {
	h := newAudited(t)
	q := newPriorityQueue(t, h, "q")
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
		before := len(h.actions)
		status, _ := post(t, h, header, "queue", "q", "action", "remove", "key", "a")
		if status != http.StatusForbidden || q.Len() != 1 || len(h.actions) != before+1 || h.last().Err == nil {
			t.Fatalf("%s: status %d, %d keys, the audit got %+v", name, status, q.Len(), h.actions[before:])
		}
	}
	// Scripts of other sites may send the header only if we say so to an OPTIONS request, which we do not.
	w := do(h, "OPTIONS", "/", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-workqueue-action")
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Access-Control-Allow-Origin") != "" || w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("OPTIONS: %d %v", w.Code, w.Header())
	}
	// An action in the address does nothing, with any method.
	get(h, "?queue=q&action=remove&key=a", asPage...)
	w = do(h, "POST", "/?queue=q&action=remove&key=a", asPage[:2]...)
	if q.Len() != 1 {
		t.Error("an address removed a key")
	}
	wantBody(t, w, "no form (application/x-www-form-urlencoded)") // and says so, and not that there is no such queue
	// A program that is no browser sends no Origin. It needs the header.
	if status, _ := post(t, h, asPage[:2], "queue", "q", "action", "remove", "key", "a"); status != 200 || q.Len() != 0 {
		t.Errorf("as curl does: %d", status)
	}
}

// A hook gets texts that are fit for a log.
func TestAuditOfUnusualForms(t *testing.T) {
	h := newAudited(t)
	debug.Register(h.Handler, "q", workqueue.NewTyped[int]())
	post(t, h, asPage, "queue", "no\nsuch", "action", strings.Repeat("x", 1000), "key", "\x1b[31m")
	if a := h.last(); a.Queue != `no\nsuch` || a.Key != `\x1b[31m` || len(a.Name) > 140 || a.Err == nil {
		t.Errorf("%+v", a)
	}
	if status, a := post(t, h, asPage, "queue", "q", "key", strings.Repeat("x", 1_000_000)); status != 400 ||
		!strings.Contains(a.Error, "form") {
		t.Errorf("a long form: %d %+v", status, a)
	}
}

// A long name of a group is cut where keys are shown.
func TestLongGroup(t *testing.T) {
	h := newAudited(t)
	long := strings.Repeat("g", 4<<20)
	q := priorityqueue.New(priorityqueue.Config[int]{
		Name: "q", MetricsProvider: h, Group: func(key int) string { return long },
	})
	defer q.ShutDown()
	for key := range 60 {
		q.Add(key)
	}
	for _, query := range []string{"?queue=q&format=json", "?queue=q", "?queue=q&key=7",
		"?queue=q&state=queued&format=json"} {
		if n := get(h, query).Body.Len(); n > 1<<20 {
			t.Errorf("%s has %d bytes", query, n)
		}
	}
}

// Groups can be paused and resumed. Those that are paused are listed even if none of their keys is, with how
// many keys they have and for how long the pause lasts, and the list of queues says that there are any. A
// button is for its own group, and the name on it is fit for a page.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: h,
			Group: func(key string) string { group, _, _ := strings.Cut(key, "/"); return group }})
		defer q.ShutDown()
		long := strings.Repeat("x", 200)
		for _, key := range []string{"acme <b>/1", "acme <b>/2", long + "a/1"} {
			q.Add(key)
		}
		link := linksToKeys(h, "?queue=q")[0]
		wantBody(t, get(h, link), `data-action="pause_group" data-queue="q" data-group="acme &lt;b&gt;"`)
		groups := []string{"acme <b>", long + "a", long + "b", "a\n", `a\n`}
		for _, group := range groups {
			if h.act(t, 200, "q", "pause_group", "group", group, "for", "90s"); h.last().Group == "" {
				t.Errorf("%+v", h.last())
			}
		}
		wantBody(t, get(h, "?queue=q"), "5 groups paused</span>", "Blocked by a limit or a pause",
			"Paused groups</h2>", `aria-label="Resume group: a\n"`, "acme &lt;b&gt;", `<td class="n">2</td>`,
			"1m 30s more</td>", `data-action="resume_group"`,
			`data-group="`+long+`a"`, `aria-label="Resume group: `+long[:128]+`…"`, `<td class="n">0</td>`)
		wantBody(t, get(h, ""), `<span class="badge warn">5 groups paused</span>`)
		for _, group := range groups[1:] {
			h.act(t, 200, "q", "resume_group", "group", group)
		}
		if got := q.PausedGroups(); !slices.Equal(got, groups[:1]) {
			t.Errorf("%q", got)
		}
		for _, action := range []string{"pause_group", "resume_group"} {
			if a := h.act(t, 400, "q", action); !strings.Contains(a.Error, "lacks the field group") {
				t.Errorf("%s: %+v", action, a)
			}
		}
		newPriorityQueue(t, h, "plain").Add("a")
		if body := get(h, linksToKeys(h, "?queue=plain")[0]).Body.String(); strings.Contains(body, `data-action="pause_group"`) {
			t.Error("a queue without groups has some")
		}
		h.act(t, 400, "plain", "pause_group", "group", "a")
	})
}

// Cancel ends the context of the handler that has the key, and of no other one.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newRateLimited[string](t, "q", h)
		ended := make(map[string]error)
		start(t, worker.New(q, func(ctx context.Context, key string) error {
			<-ctx.Done()
			ended[key] = context.Cause(ctx)
			return nil
		}, worker.Options[string]{Workers: 2, MetricsProvider: h}))
		q.Add("a")
		q.Add("b")
		synctest.Wait()
		wantBody(t, get(h, "?queue=q"), "Running</h2>", `data-action="cancel" data-queue="q" data-key="a"`)
		h.act(t, 200, "q", "cancel", "key", "a")
		synctest.Wait()
		if len(ended) != 1 || ended["a"] == nil || errors.Is(ended["a"], context.DeadlineExceeded) {
			t.Errorf("ended: %v", ended)
		}
		if h.last().Key != "a" || h.last().Keys != 1 {
			t.Errorf("%+v", h.last())
		}
		q.AddAfter("later", time.Hour)
		if a := h.act(t, 404, "q", "cancel", "key", "later"); !strings.Contains(a.Error, "No handler") {
			t.Errorf("%+v", a)
		}
	})
}

// Without actions a page has no buttons.
func TestPageWithoutActions(t *testing.T) {
	h := newHandler(t, debug.Options{})
	newRateLimited[string](t, "q", h).AddAfter("a", time.Hour)
	if body := get(h, "?queue=q").Body.String(); strings.Contains(body, "data-action=") {
		t.Error("there are buttons")
	}
}
