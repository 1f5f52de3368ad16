package debug_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

// Of a queue that cannot pause, the page pauses the pools: for a time, and until they are resumed.
func TestPauseOfPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(context.Context, string) error { return nil },
			worker.Options[string]{MetricsProvider: h}))
		handled := func() float64 {
			synctest.Wait()
			return float64(getJSON[detail](t, h, "?queue=q").Queue.Pools[0].Handled)
		}
		synctest.Wait()
		wantBody(t, get(h, "?queue=q"), `data-action="pause"`, "Pause queue", `data-for="15m"`)
		h.act(t, 200, "q", "pause", "for", "15m")
		q.Add("a")
		if n := handled(); n != 0 {
			t.Errorf("%v handled in the pause", n)
		}
		time.Sleep(5 * time.Minute)
		wantBody(t, get(h, "?queue=q"), "paused for 10m more</span>", `data-action="resume"`)
		wantBody(t, get(h, ""), "paused for 10m more</span>")
		time.Sleep(11 * time.Minute)
		if n := handled(); n != 1 {
			t.Errorf("%v handled after it", n)
		}
		h.act(t, 200, "q", "pause")
		q.Add("b")
		time.Sleep(24 * time.Hour)
		if n := handled(); n != 1 {
			t.Errorf("%v handled in the second pause", n)
		}
		h.act(t, 200, "q", "resume")
		if n := handled(); n != 2 {
			t.Errorf("%v handled in the end", n)
		}
		h.act(t, 200, "q", "pause")
		start(t, worker.New(q, func(context.Context, string) error { return nil },
			worker.Options[string]{Name: "not paused", MetricsProvider: h}))
		synctest.Wait()
		wantBody(t, get(h, "?queue=q"), `data-action="resume"`, `data-action="pause"`,
			`q <span class="badge warn">paused</span></th>`, "not paused</th>")
	})
}

// What an operator must know first stands above the lists: that a restart would help, and why, and that the
// start limit keeps keys back.
func TestWedgedAndStartLimited(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		wedged := newRateLimited[string](t, "stands", h)
		start(t, worker.New(wedged, func(ctx context.Context, _ string) error { <-ctx.Done(); return nil },
			worker.Options[string]{MetricsProvider: h, Workers: 2, Drain: worker.Nothing, Logger: silent}))
		limited := newRateLimited[string](t, "limited", h)
		start(t, worker.New(limited, func(context.Context, string) error { return nil },
			worker.Options[string]{MetricsProvider: h, StartLimit: rate.NewLimiter(rate.Every(time.Hour), 1),
				Drain: worker.Nothing, Logger: silent}))
		for n := range 4 {
			wedged.Add(fmt.Sprint("key ", n))
			limited.Add(fmt.Sprint("key ", n))
		}
		time.Sleep(11 * time.Minute)
		wantBody(t, get(h, "?queue=stands"), "wedged</span>", "A restart of the program would help: worker: all of 2 workers",
			`<dl class="tiles">`, `<h2 id="times">`, `<h2 id="processing">`)
		wantBody(t, get(h, "?queue=limited"), "held back by the start limit</span>", "StartLimit lets none of them through",
			`<dl class="tiles">`, `<h2 id="times">`, `<h2 id="queued">`)
		wantBody(t, get(h, ""), "wedged</span>")
		wantBody(t, get(h, ""), "held back by the start limit</span>")
	})
}
