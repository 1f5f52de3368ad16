package debug_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"go.uber.org/goleak"
	testingclock "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClock() *testingclock.FakeClock {
	return testingclock.NewFakeClock(time.Date(2026, 11, 20, 9, 14, 3, 0, time.UTC))
}

func newHandler(t *testing.T, o debug.Options) *debug.Handler {
	h := debug.NewHandler(o)
	t.Cleanup(h.Close)
	return h
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

// getJSON returns the object that h answers to a query.
func getJSON[R any](t *testing.T, h http.Handler, query string) (answer R) {
	t.Helper()
	w := get(h, query, "Accept", "application/json")
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Fatalf("%s: content type %q", query, got)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v\n%s", query, err, w.Body)
	}
	return answer
}

// list is the part of the answer that most tests look at.
type list struct {
	Registered, Matching, Page, Pages, Queued, Processing, Waiting int
	Sort, Search                                                   string
	Queues                                                         []listed
}

type listed struct {
	ID, Name, Error string
	Queued          int
	Depth           []int
}

func (l list) ids() string {
	var ids []string
	for _, q := range l.Queues {
		ids = append(ids, q.ID)
	}
	return strings.Join(ids, " ")
}

type detail struct {
	Queue                             listed
	Running, Queued, Waiting, Failing []key
}

type key struct {
	Key      string
	Bytes    int
	Requeues int
}

// wantBody asserts that w has the texts, in that order.
func wantBody(t *testing.T, w *httptest.ResponseRecorder, texts ...string) {
	t.Helper()
	rest := w.Body.String()
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			_, body, _ := strings.Cut(w.Body.String(), "<body>")
			t.Fatalf("%q is not there, or not in order:\n%s", text, body)
		}
		rest = after
	}
}
