package debug_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

// failAll runs a pool over a queue named q in which each key fails with the error that errorOf returns.
func failAll(t *testing.T, h *debug.Handler, errorOf func(key string) error, keys ...string) {
	t.Helper()
	q := newRateLimited[string](t, "q", h)
	start(t, worker.New(q, func(_ context.Context, key string) error { return errorOf(key) },
		worker.Options[string]{MetricsProvider: h, MaxRetries: 5, Logger: silent}))
	for _, key := range keys {
		q.Add(key)
		synctest.Wait()
	}
}

// An outage is not hidden by other failures that came after it: the errors of all failing and given-up keys
// are counted, and the page says the same with a key that is searched for.
func TestErrorsOfAllKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var keys []string
		for n := range 50 {
			keys = append(keys, fmt.Sprintf("down/%d", n))
		}
		for n := range 600 {
			keys = append(keys, fmt.Sprintf("other/%d", n))
		}
		for n := range 40 {
			keys = append(keys, fmt.Sprintf("never/%d", n))
		}
		failAll(t, h, func(key string) error {
			kind, _, _ := strings.Cut(key, "/")
			switch kind {
			case "down":
				return errors.New("database is down")
			case "never":
				return worker.Terminal(errors.New("never"))
			}
			return fmt.Errorf("%s is broken", key)
		}, keys...)
		for _, query := range []string{"?queue=q", "?queue=q&key=down/7", "?queue=q&keys=250"} {
			d := getJSON[detail](t, h, query)
			got := fmt.Sprint(d.Errors)
			if want := "[{… is broken 600 0 is broken} {database is down 50 0 database is down} {never 0 40 never}]"; got != want {
				t.Errorf("%s: %s", query, got)
			}
			if body := get(h, query).Body.String(); strings.Contains(body, "more are not known") {
				t.Errorf("%s: the page says that errors are not known", query)
			}
		}
	})
}

// Numbers of any length differ from key to key. Three digits stay only where they are the status of an HTTP
// answer.
func TestErrorPatterns(t *testing.T) {
	for errs, want := range map[[2]string]string{
		{"order 150 conflicts", "order 151 conflicts"}:               "order … conflicts",
		{"order 404 conflicts", "order 405 conflicts"}:               "order … conflicts",
		{"unexpected status code 503", "unexpected status code 503"}: "unexpected status code 503",
		{`GET "/a1": 503 Service Unavailable`,
			`GET "/a2": 503 Service Unavailable`}: `GET "…": 503 Service Unavailable`,
		{"status=429: slow down 100", "status=429: slow down 200"}: "status=429: slow down …",
		{"HTTP/1.1 404 for 12", "HTTP/1.1 404 for 13"}:             "… 404 for …",
		{"googleapi: Error 403: no", "googleapi: Error 403: no"}:   "googleapi: Error 403: no",
		{"status 999", "status 998"}:                               "status …",
		{"a:1,2 (3)", "a:4,5 (6)"}:                                 "a:…,… (…)",
	} {
		inBubble(t, func(t *testing.T, h *debug.Handler) {
			failAll(t, h, func(key string) error {
				if key == "one" {
					return errors.New(errs[0])
				}
				return errors.New(errs[1])
			}, "one", "two")
			if d := getJSON[detail](t, h, "?queue=q"); len(d.Errors) != 1 || d.Errors[0].Error != want ||
				d.Errors[0].Failing != 2 {
				t.Errorf("%q: %+v", errs, d.Errors)
			}
		})
	}
}

// A page of ten thousand failing keys takes some 30 ms.
func BenchmarkErrors(b *testing.B) {
	h := debug.NewHandler(debug.Options{})
	defer h.Close()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
	q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: h})
	defer q.ShutDown()
	pool := worker.New(q, func(_ context.Context, key string) error {
		return fmt.Errorf("copying %s: write /srv/uploads/%s.part: no space left on device", key, key)
	}, worker.Options[string]{MetricsProvider: h, Logger: silent})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- pool.Run(ctx) }()
	for n := range 10_000 {
		q.Add(fmt.Sprintf("2026-11-20/camera-%d.raw", n))
	}
	for pool.Stats().Failing < 10_000 {
		time.Sleep(time.Millisecond)
	}
	for b.Loop() {
		get(h, "?queue=q")
	}
	cancel()
	<-done
}
