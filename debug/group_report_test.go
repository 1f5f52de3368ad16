package debug_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A key on hold counts against its group's limit. The page says so, and which group it is that waits for the key.
func TestGroupAtItsLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := priorityqueue.New(priorityqueue.Config[string]{
			Name: "q", MetricsProvider: h,
			Group: func(string) string { return "acme" },
			Limit: func(string) int { return 1 },
		})
		start(t, worker.New(q, func(ctx context.Context, _ string) error {
			worker.CallOf(ctx).Hold("it is ready", time.Hour)
			return worker.RequeueAfter(0)
		}, worker.Options[string]{MetricsProvider: h, Drain: worker.Nothing, Logger: silent}))
		q.Add("first")
		q.Add("second")
		synctest.Wait()
		wantBody(t, get(h, "?queue=q"), "acme", "at limit: 1 of 1")
		wantBody(t, get(h, "?queue=q&format=json"), `"on_hold":[{"key":"first"`, `"group":"acme"`,
			`"groups":[{"group":"acme"`, `"keys":2,"held":1,"limit":1}`)
	})
}
