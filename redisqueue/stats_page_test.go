package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// page returns what the page has for a query, and how long it took.
func page(h *debug.Handler, query string) (body string, took time.Duration) {
	began := time.Now()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/"+query, nil))
	return w.Body.String(), time.Since(began)
}

// While the server is stopped (it accepts connections and is silent) or gone, no page takes much longer than
// five seconds, each says that the server does not answer, and none that a key is not there. Then everything
// is as before.
func TestPageInAnOutage(t *testing.T) {
	for name, outage := range map[string]struct{ begin, end func(*server) }{
		"stopped": {func(s *server) { s.signal(syscall.SIGSTOP) }, func(s *server) { s.signal(syscall.SIGCONT) }},
		"gone":    {(*server).kill, (*server).start},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
			h := debug.NewHandler(debug.Options{})
			defer h.Close()
			q := newTestQueue(t, s.client(), Config[string]{Name: "q", MetricsProvider: h})
			pool := worker.New(q, func(context.Context, string) error { return worker.Terminal(errors.New("broken")) },
				worker.Options[string]{Logger: discard, KeepQueue: true})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- pool.Run(ctx) }()
			addAll(q, keysNamed("given up ", 30)...)
			eventually(t, time.Minute, func() error {
				if n := leasing.StatsOf(freshStats(t, q)).GivenUp; n != 30 {
					return fmt.Errorf("%d keys are given up", n)
				}
				return nil
			})
			stop()
			must(t, <-ended)
			q.AddAfter("a", time.Hour)
			flush(t, q)
			if body, _ := page(h, "?queue=q&key=a"); !strings.Contains(body, "<code>a</code>") {
				t.Fatalf("before: %s", body)
			}
			outage.begin(s)
			eventually(t, time.Minute, func() error {
				if !leasing.StatsOf(q.Stats()).Outage {
					return errors.New("the queue has not noticed the outage")
				}
				return nil
			})
			for query, want := range map[string]string{
				"":                 "no answer from its server</span>",
				"?queue=q":         "does not reach its server",
				"?queue=q&key=a":   "its keys are not known",
				"?queue=q&key=b":   "that was looked at is called",
				"?queue=q&error=x": "Not all errors were looked at.",
				"?key=b":           "gave no answer",
			} {
				body, took := page(h, query)
				if took > 10*time.Second { // Five, and this machine may be slow.
					t.Errorf("%q takes %v", query, took)
				}
				if !strings.Contains(body, want) || strings.Contains(body, "may be done") ||
					strings.Contains(body, "No key waits") {
					t.Errorf("%q: no %q in %s", query, want, body)
				}
			}
			outage.end(s)
			eventually(t, time.Minute, func() error {
				if body, _ := page(h, "?queue=q&key=a"); !strings.Contains(body, "<code>a</code>") ||
					strings.Contains(body, "does not reach its server") {
					return fmt.Errorf("after the outage: %s", body)
				}
				return nil
			})
		})
	}
}

// The page also shows the outage of a queue without metrics.
func TestPageOutageWithoutMetrics(t *testing.T) {
	s := startServer(t)
	h := debug.NewHandler(debug.Options{})
	defer h.Close()
	q := newTestQueue(t, s.client(), Config[string]{Name: "q", Logger: discard})
	defer debug.Register(h, "q", q)()
	if body, _ := page(h, ""); strings.Contains(body, "no answer from its server") {
		t.Fatalf("before: %s", body)
	}
	s.kill()
	eventually(t, time.Minute, func() error {
		if body, _ := page(h, ""); !strings.Contains(body, "no answer from its server") {
			return fmt.Errorf("no outage in %s", body)
		}
		return nil
	})
	s.start()
	eventually(t, time.Minute, func() error {
		if body, _ := page(h, ""); strings.Contains(body, "no answer from its server") {
			return fmt.Errorf("after the outage: %s", body)
		}
		return nil
	})
}
