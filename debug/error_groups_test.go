package debug_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

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
// are counted.
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
		got := fmt.Sprint(getJSON[detail](t, h, "?queue=q").Errors)
		if want := "[{… is broken 600 0 is broken} {database is down 50 0 database is down} {never 0 40 never}]"; got != want {
			t.Error(got)
		}
		if body := get(h, "?queue=q").Body.String(); strings.Contains(body, "more are not known") {
			t.Error("the page says that errors are not known")
		}
	})
}

// errorsOf returns the errors that the page counts of keys that fail with these, once each, by their texts.
func errorsOf(t *testing.T, errs ...string) map[string]int {
	t.Helper()
	found := make(map[string]int)
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		keys := make([]string, len(errs))
		of := make(map[string]error)
		for i, err := range errs {
			keys[i] = fmt.Sprintf("key/%c%c%c", 'a'+i/676, 'a'+i/26%26, 'a'+i%26)
			of[keys[i]] = errors.New(err)
		}
		failAll(t, h, func(key string) error { return of[key] }, keys...)
		for _, e := range getJSON[detail](t, h, "?queue=q").Errors {
			found[e.Error] = e.Failing
		}
	})
	return found
}

// Names and numbers differ from key to key.
func TestErrorPatterns(t *testing.T) {
	for errs, want := range map[[2]string]string{
		{"order 150 conflicts", "order 151 conflicts"}:               "order … conflicts",
		{"unexpected status code 503", "unexpected status code 503"}: "unexpected status code 503",
		{`GET "/a1": 503 Service Unavailable`,
			`GET "/a2": 503 Service Unavailable`}: `GET "…": 503 Service Unavailable`,
		{"status=429: slow down 50", "status=429: slow down 60"}: "status=429: slow down …",
		{"HTTP/1.1 404 for 12", "HTTP/1.1 404 for 13"}:           "… 404 for …",
		{"googleapi: Error 403: no", "googleapi: Error 403: no"}: "googleapi: Error 403: no",
		{"a:1,2 (3)", "a:4,5 (6)"}:                               "a:…,… (…)",
		{"no lease 2f6a after 1.5s", "no lease 9b1c after 30s"}:  "no lease … after …",
	} {
		if got := errorsOf(t, errs[0], errs[1]); len(got) != 1 || got[want] != 2 {
			t.Errorf("%q: %v", errs, got)
		}
	}
}

// Errors that differ in a status alone stay apart, as libraries write them.
func TestErrorsThatDifferInACode(t *testing.T) {
	for _, errs := range [][2]string{
		{"server returned 503", "server returned 404"},
		{"got 503", "got 404"},
		{"response 503", "response 404"},
		{"upstream failed (503)", "upstream failed (404)"},
		{"GET https://api.example.com/v1/pods/a7: 503 []", "GET https://api.example.com/v1/pods/b8: 404 []"},
		{"exit status 1", "exit status 137"},
		{"ERROR: deadlock detected (SQLSTATE 40P01)", "ERROR: deadlock detected (SQLSTATE 40001)"},
		{"Error 1213 (40001): try again", "Error 1205 (HY000): try again"},
		{"unexpected status code: 503", "unexpected status code: 404"},
		{"HTTP 502", "HTTP 504"},
		{"api error: status=429", "api error: status=500"},
		{"googleapi: Error 403: no", "googleapi: Error 409: no"},
		{"rpc failed: errno 11", "rpc failed: errno 110"},
	} {
		if got := errorsOf(t, errs[0], errs[1]); len(got) != 2 {
			t.Errorf("%q are one: %v", errs, got)
		}
	}
}

// A number with few values over many keys is no name, and one with more than eight is.
func TestErrorsWithNumbers(t *testing.T) {
	var few, many []string
	for i := range 24 {
		few = append(few, fmt.Sprintf("shard %d is full", i%8))
		many = append(many, fmt.Sprintf("status 4%02d", i))
	}
	if got := errorsOf(t, few...); len(got) != 8 || got["shard 7 is full"] != 3 {
		t.Errorf("%v", got)
	}
	if got := errorsOf(t, many...); len(got) != 1 || got["status …"] != 24 {
		t.Errorf("%v", got)
	}
}

// However many errors differ in several words, names among them are one, and codes stay apart.
func TestErrorsWithManyNames(t *testing.T) {
	var errs []string
	for i := range 676 * 3 {
		errs = append(errs, fmt.Sprintf("status %d: order %d of %d", []int{404, 503}[i%2], i, i/7))
	}
	if got := errorsOf(t, errs...); len(got) != 2 || got["status 404: order … of …"] != len(errs)/2 ||
		got["status 503: order … of …"] != len(errs)/2 {
		t.Errorf("%v", got)
	}
}
