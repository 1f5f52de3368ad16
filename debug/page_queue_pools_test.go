package debug_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

// The page says since when a key fails, that Cancel was pressed, how many calls were interrupted, and how
// many given-up keys are listed.
func TestWhatPoolsKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(ctx context.Context, key string) error {
			switch {
			case key == "fails":
				return errors.New("broken")
			case key == "waits":
				<-worker.CallOf(ctx).UntilAdded().Done()
				return context.Canceled
			case key == "ignores":
				<-ctx.Done()
				time.Sleep(time.Second / 2)
				return nil
			}
			return worker.Terminal(errors.New("never"))
		}, worker.Options[string]{Name: "q", Workers: 3, MetricsProvider: h}))
		q.Add("fails")
		synctest.Wait()
		time.Sleep(90 * time.Minute) // It has failed again after an hour.
		for n := range 5 {
			q.Add(fmt.Sprint("never ", n))
		}
		q.Add("waits")
		q.Add("ignores")
		synctest.Wait()
		q.Add("waits")
		synctest.Wait()
		answer := h.act(t, 200, "q", "cancel", "key", "ignores")
		synctest.Wait()
		if !strings.Contains(answer.Text, "handler of ignores") {
			t.Errorf("%+v", answer)
		}
		d := getJSON[detail](t, h, "?queue=q")
		if f := d.Failing[0]; time.Since(f.FailsSince) != 90*time.Minute || f.Attempt != 2 {
			t.Errorf("%+v, want a key that has failed for 90 minutes", f)
		}
		if len(d.Running) != 2 || !d.Running[0].Canceled && !d.Running[1].Canceled || d.Running[0].Canceled &&
			d.Running[1].Canceled {
			t.Errorf("%+v, want a canceled call", d.Running)
		}
		if p := d.Queue.Pools[0]; p.Interrupted != 1 || p.GivenUp != 5 || p.GivenUpKeys != 5 {
			t.Errorf("%+v", p)
		}
		wantBody(t, get(h, "?queue=q"), "1h 30m</td>", "2 of 2",
			`canceled</span>`, `data-label="Interrupted">1<`)
		for range 5 { // The sixth interruption in a row makes it a loop.
			q.Add("waits")
			synctest.Wait()
		}
		wantBody(t, get(h, "?queue=q"), `(1 key loops)`)
		if k := getJSON[story](t, h, linksToKeys(h, "?queue=q&key=waits")[0]).Key; k.AtOnce != 6 {
			t.Errorf("%+v", k)
		}
		wantBody(t, get(h, linksToKeys(h, "?queue=q&key=ignores")[0]), "Its handler was canceled, and still runs",
			"running, canceled")
		if c := count(t, h, "given_up"); c != (counted{5, false}) {
			t.Errorf("%+v", c)
		}
		if b := h.act(t, 200, "q", "forget", "of", "given_up"); b.Keys != 5 || b.LeftMore {
			t.Errorf("%+v", b)
		}
	})
}

// The keys that are called most stand above the lists, with their causes, once one of them takes a noticeable
// part of all calls.
func TestBusiestKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(context.Context, string) error { return nil },
			worker.Options[string]{MetricsProvider: h}))
		for n := range 200 {
			q.Add(strconv.Itoa(n % 50))
			synctest.Wait()
		}
		if body := get(h, "?queue=q").Body.String(); strings.Contains(body, "Busiest keys") {
			t.Error("no key is busier than others")
		}
		for range 30 {
			q.AddCause("loops", workqueue.Cause{Reason: "its own status"})
			synctest.Wait()
		}
		wantBody(t, get(h, "?queue=q"), `<h2 id="busiest">Busiest keys</h2>`, "<code>loops</code>",
			"its own status", `data-label="Calls">30<`, `data-label="Of its pool">13%<`, "Running</h2>", "Head of the line</h2>")
	})
}

// The delays that failed keys get have a row in the table of times, above the lists.
func TestTimesUntilRetries(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		failAll(t, h, func(string) error { return errors.New("broken") }, "a")
		wantBody(t, get(h, "?queue=q"), "Times</h2>", "Until a retry</th>", `data-label="Keys">1<`,
			`data-label="Mean">1h<`, "Failing</h2>")
	})
}

// The time for which keys are on hold is no time in work: it has a row of its own.
func TestTimesOnHold(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(ctx context.Context, _ string) error {
			time.Sleep(time.Second)
			worker.CallOf(ctx).Hold("the answer has come", time.Minute)
			return nil
		}, worker.Options[string]{MetricsProvider: h}))
		q.Add("a")
		time.Sleep(2 * time.Minute)
		wantBody(t, get(h, "?queue=q"), "Times</h2>", "In work</th>", `data-label="Mean">1 s<`,
			"On hold</th>", `data-label="Mean">1m<`)
	})
}
