package debug_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

type (
	changeTimes struct {
		Count  int
		Mean   float64 `json:"mean_seconds"`
		Half   float64 `json:"p50_at_most_seconds"`
		Ninety float64 `json:"p90_at_most_seconds"`
		Most   float64 `json:"p99_at_most_seconds"`
	}
	unanswered struct {
		Queue named
		Age   float64 `json:"age_seconds"`
		Key   *string
	}
	changesPage struct {
		Changes *changeTimes
		Recent  struct{ Changes *changeTimes }
		Queue   struct {
			Oldest *unanswered `json:"oldest_unanswered"`
		}
	}
	changesList struct {
		Oldest *unanswered `json:"oldest_unanswered"`
	}
)

// The page of a queue has how long changes take, and the list the oldest unanswered one.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		q, other := newRateLimited[string](t, "q", h), newRateLimited[string](t, "other", h)
		var repaired atomic.Bool
		handler := func(_ context.Context, key string) error {
			time.Sleep(200 * time.Millisecond)
			if key == "default/web" && !repaired.Load() {
				return worker.RetryAfter(errors.New("broken"), 15*time.Minute)
			}
			return nil
		}
		start(t, worker.New(q, handler, worker.Options[string]{MetricsProvider: h, Workers: 10}))
		start(t, worker.New(other, handler, worker.Options[string]{MetricsProvider: h}))
		if l := getJSON[changesList](t, h, ""); l.Oldest != nil {
			t.Errorf("without keys: %+v", l.Oldest)
		}
		q.Add("default/web")
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			q.Add(key)
		}
		time.Sleep(14 * time.Minute)
		l := getJSON[changesList](t, h, "")
		if u := l.Oldest; u == nil || u.Age != 14*60 || u.Key == nil || *u.Key != "default/web" ||
			u.Queue.Name != "q" {
			t.Errorf("%+v", u)
		}
		if l := getJSON[changesList](t, h, "?search=other"); l.Oldest != nil {
			t.Errorf("of the other: %+v", l.Oldest)
		}
		for _, page := range []string{"", "?queue=q"} {
			if text := get(h, page).Body.String(); !strings.Contains(text, `<b class="bad">14m</b>, <a href="?id=`) ||
				!strings.Contains(text, `<code>default/web</code></a>`) {
				t.Errorf("the page %q does not show the oldest change", page)
			}
		}
		repaired.Store(true)
		time.Sleep(2 * time.Minute)
		q.Add("default/web")
		time.Sleep(time.Second)
		p := getJSON[changesPage](t, h, "?queue=q")
		if c := p.Recent.Changes; c == nil || c.Count != 1 || c.Most != 1800 {
			t.Errorf("recent: %+v", c)
		}
		if p.Queue.Oldest != nil {
			t.Errorf("after the success: %+v", p.Queue.Oldest)
		}
		if text := get(h, "?queue=q").Body.String(); !strings.Contains(text, "A change</th>") ||
			!strings.Contains(text, "90% of them") {
			t.Error("the page does not show how long changes take")
		}
	})
}
