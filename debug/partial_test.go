package debug_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
)

// keeper is a queue that keeps n keys as given up.
func keeper(h *debug.Handler, n int) (left func() int) {
	kept := make([]workqueue.GivenUpKey[any], n)
	for i := range kept {
		kept[i] = workqueue.GivenUpKey[any]{Key: i, Attempts: 1, Err: "broken"}
	}
	retried := make(map[any]bool)
	h.InspectQueue("q", workqueue.Inspector{
		Stats: func() workqueue.Stats { return workqueue.Stats{} },
		Add:   func(any) {},
		GivenUp: func(limit int) []workqueue.GivenUpKey[any] {
			kept = slices.DeleteFunc(kept, func(k workqueue.GivenUpKey[any]) bool { return retried[k.Key] })
			return slices.Clone(kept[:min(limit, len(kept))])
		},
		RetryGivenUp: func(key any) bool { retried[key] = true; return true },
	})
	return func() int { return n - len(retried) }
}

type counted struct {
	Count int
	More  bool
}

// A list that has not all keys is no secret: neither in a count nor in the answer to an action, nor on the page.
func TestMoreKeysThanAreListed(t *testing.T) {
	h := newHandler(t, debug.Options{Actions: true, Audit: new(audited).hook})
	left := keeper(h, 15_000)
	for _, query := range []string{"given_up", "all", "all&error=broken"} {
		if c := getJSON[counted](t, h, "?queue=q&count="+query); c != (counted{10_000, true}) {
			t.Errorf("%s: %+v", query, c)
		}
	}
	wantBody(t, get(h, "?queue=q&error=broken"), `<main id="live">`, "Not all errors were looked at.")
	_, b := postMany(t, h, "queue", "q", "action", "retry", "of", "given_up", "count", "10000")
	if b.Keys != 10_000 || b.Gone != 0 || b.Left != 0 || !b.LeftMore || b.Text != "Retried 10,000 keys; there may be more." || left() != 5000 {
		t.Errorf("%+v, %d are left", b, left())
	}
	wantBody(t, get(h, "?queue=q&error=broken"), `data-refresh="5"`)
	_, b = postMany(t, h, "queue", "q", "action", "retry", "of", "given_up")
	if b.Keys != 5000 || b.LeftMore || b.Text != "Retried 5,000 keys." || left() != 0 {
		t.Errorf("%+v, %d are left", b, left())
	}

	exact := newHandler(t, debug.Options{})
	keeper(exact, 10_000)
	if c := getJSON[counted](t, exact, "?queue=q&count=given_up"); c != (counted{10_000, false}) {
		t.Errorf("all are listed: %+v", c)
	}
}

// Of keys that only the limiter counts, a queue lists 512. If the pools know these, the limiter is no news.
func TestMoreFailingKeysThanAreListed(t *testing.T) {
	h := newHandler(t, debug.Options{Actions: true, Audit: new(audited).hook})
	failing := 2000
	q := workqueue.Inspector{
		Stats: func() workqueue.Stats { return workqueue.Stats{} }, Add: func(any) {},
		Snapshot: func(limit int) (s workqueue.Snapshot[any]) {
			for i := range min(limit, 512, failing) {
				s.Failing = append(s.Failing, workqueue.KeySnapshot[any]{Key: i, Requeues: 1})
			}
			return s
		},
	}
	h.InspectQueue("q", q)
	if c := getJSON[counted](t, h, "?queue=q&count=failing"); c != (counted{512, true}) {
		t.Errorf("%+v", c)
	}
	if _, b := postMany(t, h, "queue", "q", "action", "retry", "of", "failing"); b.Keys != 512 || !b.LeftMore || b.Text != "Retried 512 keys; there may be more." {
		t.Errorf("%+v", b)
	}
	failing = 511
	if c := getJSON[counted](t, h, "?queue=q&count=failing"); c != (counted{511, false}) {
		t.Errorf("%+v", c)
	}
	failing = 2000
	known := newHandler(t, debug.Options{})
	many(known, 2000, q)
	if c := getJSON[counted](t, known, "?queue=q&count=failing"); c != (counted{2000, false}) {
		t.Errorf("the pool knows all: %+v", c)
	}
}

// Pages with the errors of a queue go over its keys one after another, and do not wait for long.
func TestErrorsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		var busy, calls atomic.Int32
		h.InspectQueue("q", workqueue.Inspector{
			Stats: func() workqueue.Stats { return workqueue.Stats{} },
			GivenUp: func(limit int) []workqueue.GivenUpKey[any] {
				if limit > 512 { // It is not one of the page's lists.
					if busy.Add(1) > 1 {
						t.Error("two at once")
					}
					calls.Add(1)
					time.Sleep(900 * time.Millisecond)
					busy.Add(-1)
				}
				return []workqueue.GivenUpKey[any]{{Key: 1, Err: "broken"}}
			},
		})
		began := time.Now()
		var wg sync.WaitGroup
		var late atomic.Int32
		for range 20 {
			wg.Go(func() {
				if body := get(h, "?queue=q&error=broken").Body.String(); !strings.Contains(body, `data-refresh="5"`) {
					late.Add(1)
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d > 6*time.Second || calls.Load() > 6 || late.Load() < 14 || late.Load() == 20 {
			t.Errorf("after %v: %d calls, %d pages without all keys", d, calls.Load(), late.Load())
		}
	})
}

// An action does not wait for a search.
func TestActionsDoNotWaitForReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{Actions: true, Audit: new(audited).hook})
		defer h.Close()
		h.InspectQueue("endless", (&manyKeys{n: 1 << 30, each: time.Millisecond}).inspector())
		many(h, 10, workqueue.Inspector{Stats: func() workqueue.Stats { return workqueue.Stats{} }, Add: func(any) {}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/?queue=endless&key=none", nil))
		})
		time.Sleep(time.Second)
		began := time.Now()
		if _, b := postMany(t, h, "queue", "q", "action", "retry", "of", "failing"); b.Keys != 10 || time.Since(began) > time.Second {
			t.Errorf("after %v: %+v", time.Since(began), b)
		}
		cancel()
		wg.Wait()
	})
}
