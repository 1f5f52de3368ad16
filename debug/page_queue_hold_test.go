package debug_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Keys on hold are listed on the queue's page with what they wait for, and not as running. Their own pages
// say it too, and release them.
func TestKeysOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: h})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- worker.Run(ctx, q, func(ctx context.Context, key string) error {
				if key == "busy" {
					<-ctx.Done()
					return nil
				}
				worker.CallOf(ctx).Hold("the cache shows <"+key+">", time.Hour)
				return worker.RequeueAfter(0)
			}, worker.Options[string]{Workers: 2, MetricsProvider: h, Drain: worker.Nothing})
		}()
		for i := range 30 {
			q.Add(fmt.Sprintf("held/%02d", i))
			synctest.Wait()
		}
		time.Sleep(5 * time.Minute)
		for _, query := range []string{"", "?queue=q"} { // That they wait is no trouble.
			if body := get(h, query).Body.String(); strings.Contains(strings.ToLower(body), "oldest unanswered: ") ||
				strings.Contains(body, "<dt>Oldest unanswered") {
				t.Errorf("%q: a key on hold has no answer", query)
			}
		}
		q.Add("busy")
		time.Sleep(5 * time.Minute)
		d := getJSON[detail](t, h, "?queue=q")
		if len(d.OnHold) != 25 || len(d.Running) != 1 || d.Running[0].Key != "busy" {
			t.Fatalf("%d held, running %+v", len(d.OnHold), d.Running)
		}
		k := d.OnHold[0]
		if k.Key != "held/00" || k.Hold.Reason != "the cache shows <held/00>" || time.Since(k.Hold.Since) != 10*time.Minute {
			t.Errorf("%+v", k)
		}
		wantBody(t, get(h, "?queue=q"), "On hold</h2>", "25 of <a", `>30</a>`, "the cache shows &lt;held/00&gt;",
			"50m more", `data-action="release"`)
		wantBody(t, get(h, "?queue=q&key=held/01"),
			"It is on hold until the cache shows &lt;held/01&gt;, and for 50m more at most. Then it is queued again.",
			"on hold</dd>", `data-action="release"`)
		wantBody(t, get(h, "?queue=q"), `<dt>Oldest unanswered</dt><dd class="warn">5m</dd>`)
		// They are in a state of their own: no work, and no trouble.
		if q := d.Queue; q.Stats.OnHold != 30 || q.Stats.LongestRunning != 5*time.Minute || q.Stats.UnfinishedWork != 5*time.Minute {
			t.Errorf("%d held, longest %v s, unfinished %v s", q.Stats.OnHold, q.Stats.LongestRunning, q.Stats.UnfinishedWork)
		}
		wantBody(t, get(h, "?queue=q"), `<dt>In work</dt><dd><a href="#processing">1</a>`,
			`<dt>On hold</dt><dd><a href="#on_hold">30</a>`)
		wantBody(t, get(h, ""), "30 on hold</span></td>")
		for state, want := range map[string]int{"on_hold": 30, "processing": 1} {
			if p := getJSON[keysPage](t, h, "?queue=q&state="+state); p.Total != want ||
				len(p.Keys) != want || p.More {
				t.Errorf("%s: %d of %d keys, more %t", state, len(p.Keys), p.Total, p.More)
			}
		}
		wantBody(t, get(h, "?queue=q&state=on_hold"), "On hold</h2>", "the cache shows &lt;held/29&gt;")
		h.act(t, 200, "q", "release", "key", "held/01")
		h.act(t, 404, "q", "release", "key", "busy")
		h.act(t, 404, "q", "cancel", "key", "held/02")
		synctest.Wait()
		// It was held again.
		if k := find(t, h, "q", "held/01").Keys[0]; k.Hold == nil || time.Since(k.Hold.Since) != 0 {
			t.Errorf("%+v", k)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
