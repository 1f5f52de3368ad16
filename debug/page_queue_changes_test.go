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
		none := func(when, query string) {
			t.Helper()
			if body := strings.ToLower(get(h, query).Body.String()); strings.Contains(body, "oldest unanswered: ") ||
				strings.Contains(body, "<dt>oldest unanswered") {
				t.Errorf("%s: there is an oldest change", when)
			}
		}
		none("without keys", "")
		q.Add("default/web")
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			q.Add(key)
		}
		time.Sleep(14 * time.Minute)
		none("of the other", "?search=other")
		wantBody(t, get(h, ""), `oldest unanswered: <b class="bad">14m</b> in <a href="?queue=q">q</a>`)
		wantBody(t, get(h, "?queue=q"), `<dt>Oldest unanswered</dt><dd class="bad">14m</dd>`)
		repaired.Store(true)
		time.Sleep(2 * time.Minute)
		q.Add("default/web")
		time.Sleep(time.Second)
		none("after the success", "?queue=q")
		wantBody(t, get(h, "?queue=q"), "90% of them", "A change</th>", `data-label="Keys">1<`,
			`data-label="99% of them">≤ 30m<`)
	})
}
