package debug_test

import (
	"context"
	"encoding/json"
	"html"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
	"go.uber.org/goleak"
	testingclock "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Pools of the tests log to it.
	goleak.VerifyTestMain(m)
}

func newClock() *testingclock.FakeClock {
	return testingclock.NewFakeClock(time.Date(2026, 11, 20, 9, 14, 3, 0, time.UTC))
}

func newHandler(t testing.TB, o debug.Options) *debug.Handler {
	h := debug.NewHandler(o)
	t.Cleanup(h.Close)
	return h
}

// inBubble calls f in a bubble of virtual time, with a handler.
func inBubble(t *testing.T, f func(t *testing.T, h *debug.Handler)) {
	synctest.Test(t, func(t *testing.T) { f(t, newHandler(t, debug.Options{})) })
}

// queue is what all our queues are.
type queue[T comparable] interface {
	workqueue.TypedRateLimitingInterface[T]
	workqueue.Extended[T]
}

// newQueue returns a queue that reads the clock.
func newQueue[T comparable](t *testing.T, name string, c *testingclock.FakeClock) queue[T] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](time.Minute, time.Hour)
	q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{
		Name: name, Clock: c, MetricsProvider: debug.Times{},
	})
	t.Cleanup(q.ShutDown)
	return q.(queue[T])
}

// newRateLimited returns a queue that h shows by itself.
func newRateLimited[T comparable](t *testing.T, name string, h workqueue.MetricsProvider) queue[T] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](time.Hour, time.Hour)
	q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[T]{Name: name, MetricsProvider: h})
	t.Cleanup(q.ShutDown)
	return q.(queue[T])
}

// fail says that a call for key has failed.
func fail[T comparable](t *testing.T, q workqueue.TypedInterface[T], key T) {
	t.Helper()
	if _, err := q.(workqueue.ExtendedRateLimiting[T]).Fail(t.Context(), key, workqueue.Failure{}); err != nil {
		t.Error(err)
	}
}

// noStats is what a queue without keys reports.
func noStats() workqueue.Stats { return workqueue.Stats{} }

// showPool makes h show a pool of that queue, or of that which inspect has shown under its name.
func showPool(h worker.InspectorProvider, s worker.Snapshot[any], of ...any) {
	i := inspectorOf(func(int) worker.Snapshot[any] { return s })
	i.Queue.Queue = append(of, any(queueNamed(s.Stats.Name)))[0]
	h.InspectPool(s.Stats.Name, i)
}

// queueNamed is the Queue of an Inspector without a queue behind it.
type queueNamed string

// keysIn yields the keys that s has in that state.
func keysIn(s worker.Snapshot[any], state worker.KeyState) iter.Seq[worker.KeySnapshot[any]] {
	var keys []worker.KeySnapshot[any]
	switch state {
	case worker.KeyRunning:
		for _, k := range s.Running {
			keys = append(keys, worker.KeySnapshot[any]{Key: k.Key, Running: &k})
		}
	case worker.KeyOnHold:
		for _, k := range s.OnHold {
			keys = append(keys, worker.KeySnapshot[any]{Key: k.Key, OnHold: &k})
		}
	case worker.KeyFailing:
		for _, k := range s.Failing {
			keys = append(keys, worker.KeySnapshot[any]{Key: k.Key, Failing: &k})
		}
	case worker.KeyGivenUp:
		for _, k := range s.GivenUp {
			keys = append(keys, worker.KeySnapshot[any]{Key: k.Key, GivenUp: &k})
		}
	}
	return slices.Values(keys)
}

// inspectorOf is that of a pool that cannot do anything.
func inspectorOf(snapshot func(limit int) worker.Snapshot[any]) worker.Inspector {
	return worker.Inspector{
		Stats: func() worker.Stats { return snapshot(0).Stats },
		SnapshotKey: func(key any) worker.KeySnapshot[any] {
			k, s := worker.KeySnapshot[any]{Key: key}, snapshot(1000)
			find := func(keys []worker.FailedKey[any]) *worker.FailedKey[any] {
				if i := slices.IndexFunc(keys, func(k worker.FailedKey[any]) bool { return k.Key == key }); i >= 0 {
					return &keys[i]
				}
				return nil
			}
			k.Failing, k.GivenUp = find(s.Failing), find(s.GivenUp)
			return k
		},
		Keys:   func(state worker.KeyState) iter.Seq[worker.KeySnapshot[any]] { return keysIn(snapshot(1000), state) },
		Cancel: func(any) bool { return false },
		Forget: func(any) {},
	}
}

// start runs a pool until stop is called, or the test ends.
func start(t *testing.T, pool interface{ Run(context.Context) error }) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- pool.Run(ctx)
		close(done)
	}()
	stop = func() {
		cancel()
		for range done {
		}
	}
	t.Cleanup(stop)
	return stop
}

// get returns what h answers to a query.
func get(h http.Handler, query string, header ...string) *httptest.ResponseRecorder {
	return do(h, http.MethodGet, "/debug/workqueue"+query, header...)
}

func do(h http.Handler, method, url string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func queryEscape(s string) string { return url.QueryEscape(s) }

// getJSON returns the object that h answers to a query.
func getJSON[R any](t *testing.T, h http.Handler, query string) (answer R) {
	t.Helper()
	w := get(h, query+map[bool]string{true: "?", false: "&"}[query == ""]+"format=json")
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Fatalf("%s: content type %q", query, got)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v\n%s", query, err, w.Body)
	}
	return answer
}

// The parts of the answers that tests look at.
type (
	list struct {
		Registered, Matching, Page, Pages int
		Search                            string
		Queues                            []listed
	}
	named  struct{ ID, Name string }
	listed struct {
		named
		Error string
		Stats workqueue.Stats
		Pools []pool
	}
	pool struct {
		Name                                           string
		Wanted, Living, Busy, Handled, Failed, Failing int
		GivenUp                                        int `json:"given_up"`
		GivenUpKeys                                    int `json:"given_up_keys"`
		Interrupted                                    int
		Durations                                      workqueue.Histogram
	}
	detail struct {
		Queue                            listed
		Running, OnHold, Queued, Waiting []key
		Failing, GivenUp                 []key
		Errors                           []errorGroup
	}
	errorGroup struct {
		Error    string
		Failing  int
		GivenUp  int `json:"given_up"`
		Contains string
	}
	keysPage struct {
		Keys               []key
		Total, Page, Pages int
		More               bool
		Error              string
	}
	found struct {
		Queue                   listed
		Exact, More, Incomplete bool
		Keys                    []key
	}
	// story is found for one key.
	story struct {
		found
		Error string
		Key   key
	}
	// key has what its queue and its pools say, in one place.
	key struct {
		Key, ID, State, Error, Stack, Group             string
		Bytes, Attempt, Requeues, Priority, MaxAttempts int
		AtOnce                                          int
		Stuck, Again, Blocked, Canceled                 bool
		Since, Due, FailsSince, FailedAt                time.Time
		Causes                                          workqueue.Causes
		Hold                                            *worker.OnHoldKey[string]
	}
)

func (d *detail) UnmarshalJSON(text []byte) error {
	var answer struct {
		Queue  listed
		Keys   map[string][]key
		Errors []errorGroup
	}
	err := json.Unmarshal(text, &answer)
	of := answer.Keys
	*d = detail{Queue: answer.Queue, Errors: answer.Errors, Running: of["processing"], OnHold: of["on_hold"],
		Queued: of["queued"], Waiting: of["waiting"], Failing: of["failing"], GivenUp: of["given_up"]}
	return err
}

func (s *story) UnmarshalJSON(text []byte) error {
	err := json.Unmarshal(text, &s.found)
	if s.Error = s.Queue.Error; len(s.Keys) > 0 {
		s.Key = s.Keys[0]
	}
	return err
}

func (k *key) UnmarshalJSON(text []byte) error {
	var answer struct {
		Key, ID, State string
		Bytes          int
		InQueue        workqueue.KeySnapshot[string] `json:"in_queue"`
		InPools        worker.KeySnapshot[string]    `json:"in_pools"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	q, p := answer.InQueue, answer.InPools
	*k = key{
		Key: answer.Key, ID: answer.ID, State: answer.State, Bytes: answer.Bytes, Group: q.Group,
		Requeues: q.Requeues, Priority: q.Priority, Again: q.Again, Blocked: q.Blocked, Since: q.Since, Due: q.Due,
		Hold: p.OnHold, MaxAttempts: p.MaxAttempts, AtOnce: p.AtOnce, Causes: p.Causes,
		Attempt: q.Failures.Count, Error: q.Failures.Err, FailsSince: q.Failures.Since,
	}
	if q.Causes != nil {
		k.Causes = *q.Causes
	}
	for _, f := range []*worker.FailedKey[string]{p.Failing, p.GivenUp} {
		if f != nil && k.Attempt == 0 && k.Error == "" {
			k.Attempt, k.Error, k.FailsSince, k.FailedAt = f.Attempt, f.Err, f.Since, f.Time
		}
	}
	if c := p.Running; c != nil {
		k.Attempt, k.Stuck, k.Canceled, k.Stack = c.Attempt, c.Stuck, c.Canceled, c.Stack
	}
	return nil
}

func (l list) ids() string {
	var ids []string
	for _, q := range l.Queues {
		ids = append(ids, q.ID)
	}
	return strings.Join(ids, " ")
}

// wantIDs asserts that the list has these queues.
func wantIDs(t *testing.T, h http.Handler, query, want string) {
	t.Helper()
	if got := getJSON[list](t, h, query).ids(); got != want {
		t.Errorf("%q lists %s, want %s", query, got, want)
	}
}

// find returns what a search for a key in one queue has found.
func find(t *testing.T, h http.Handler, queue, key string) found {
	t.Helper()
	return getJSON[found](t, h, "?queue="+queue+"&key="+queryEscape(key))
}

var keyLink = regexp.MustCompile(`href="(\?id=[^"]*)"`)

// linksToKeys returns the addresses of the keys' pages that the page at query links to.
func linksToKeys(h http.Handler, query string) (links []string) {
	for _, match := range keyLink.FindAllStringSubmatch(get(h, query).Body.String(), -1) {
		links = append(links, html.UnescapeString(match[1]))
	}
	return links
}

// wantBody asserts that w has the texts, in that order.
func wantBody(t *testing.T, w *httptest.ResponseRecorder, texts ...string) {
	t.Helper()
	rest := squeezed(w.Body.String())
	for _, text := range texts {
		_, after, found := strings.Cut(rest, squeezed(text))
		if !found {
			_, body, _ := strings.Cut(squeezed(w.Body.String()), "<body>")
			body, _, _ = strings.Cut(body, "<script>")
			t.Fatalf("%q is not there, or not in order:\n%s", text, body)
		}
		rest = after
	}
}

// squeezed returns HTML with one space for each run of white space, and without that between two elements.
func squeezed(html string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(html), " "), "> <", "><")
}

// inspect shows q, with the methods that every queue has and q lacks.
func inspect(h interface {
	Show(name string, q operate.Inspector)
}, name string, q operate.Inspector) {
	if q.Queue == nil {
		q.Queue = queueNamed(name)
	}
	if q.Snapshot == nil {
		q.Snapshot = func(int) workqueue.Snapshot[any] { return workqueue.Snapshot[any]{} }
	}
	if q.SnapshotKey == nil {
		q.SnapshotKey = func(key any) (workqueue.KeySnapshot[any],
			bool) {
			return workqueue.KeySnapshot[any]{Key: key}, false
		}
	}
	if q.SnapshotKeys == nil {
		q.SnapshotKeys = func() iter.Seq[workqueue.KeySnapshot[any]] { return func(func(workqueue.KeySnapshot[any]) bool) {} }
	}
	if q.FailingKeys == nil {
		q.FailingKeys = func(limit int) []workqueue.KeySnapshot[any] { return q.Snapshot(limit).Failing }
	}
	if q.AddCause == nil && q.Add != nil {
		q.AddCause = func(key any, _ workqueue.Cause) { q.Add(key) }
	}
	if q.SnapshotGroup == nil && q.PausedGroups != nil {
		q.SnapshotGroup = func(string) operate.GroupSnapshot { return operate.GroupSnapshot{} }
	}
	h.Show(name, q)
}

// silent is the logger of pools whose failures are meant.
var silent = slog.New(slog.DiscardHandler)

// rates are a queue's numbers per second.
type rates struct{ Adds, Dones, Errors float64 }

// perSecond returns a queue's rates of the last minute.
func perSecond(h *debug.Handler, id string) rates {
	adds, dones, errors := h.Minute(id)
	return rates{adds, dones, errors}
}
