package debug_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// The answer to a retry says what keeps the key from coming at once.
func TestAnswersToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: h})
		defer q.ShutDown()
		queue := "q"
		retry := func(key, want string) {
			t.Helper()
			if a := h.act(t, 200, queue, "retry", "key", key); a.Text != want {
				t.Errorf("%q, want %q", a.Text, want)
			}
		}
		q.AddAfter("first", time.Hour)
		retry("first", "Added first.")
		if got, _ := q.Get(); got != "first" {
			t.Errorf("%s comes", got)
		}
		retry("first", "Added first. A worker has it, and Done queues it again.")
		q.AddAfter("second", time.Hour)
		q.Pause(operate.UntilResumed)
		retry("second", "Added second. The queue or its workers are paused.")

		paused := newRateLimited[string](t, "paused", h)
		inspector := inspectorOf(func(int) worker.Snapshot[any] {
			return worker.Snapshot[any]{Stats: worker.Stats{Name: "paused", Paused: true}}
		})
		inspector.Queue.Queue, inspector.Pause = paused, func(time.Duration) {}
		h.InspectPool("paused", inspector)
		paused.AddAfter("key", time.Hour)
		queue = "paused"
		retry("key", "Added key. The queue or its workers are paused.")

		later := priorityqueue.New(priorityqueue.Config[string]{
			Name: "latest", MetricsProvider: h, Delay: priorityqueue.Latest,
		})
		defer later.ShutDown()
		later.AddAfter("first", time.Hour)
		queue = "latest"
		retry("first", "Added first. Its queue makes it wait, and it comes in 1h.")
	})
}

// A queue may not have a key right after it was added: a replica of a sharded queue drops what is not its own.
func TestAnswerToRetryThatIsDropped(t *testing.T) {
	h := newAudited(t)
	many(h.Handler, 3, operate.Inspector{Stats: noStats, Add: func(any) {}})
	const want = "Added 1. The queue does not have it now: it may be done already, or another replica has its slot."
	if a := h.act(t, 200, "q", "retry", "key", "1"); a.Text != want {
		t.Error(a.Text)
	}
}

// A retry of a key on hold waits for the hold. What has just ended cannot be canceled or released, and is not
// called unknown.
func TestAnswersOfPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(ctx context.Context, _ string) error {
			worker.CallOf(ctx).Hold("it is ready", time.Hour)
			return worker.RequeueAfter(0)
		}, worker.Options[string]{MetricsProvider: h, Drain: worker.Nothing, Logger: silent}))
		q.Add("held")
		synctest.Wait()
		if a := h.act(t, 200, "q", "retry", "key",
			"held"); a.Text != "Added held. It is on hold, and comes when the hold ends." {
			t.Error(a.Text)
		}
		for action, want := range map[string]string{
			"cancel":  "No handler has a key that is called that: it may just have ended.",
			"release": "No key on hold is called that: the hold may just have ended.",
		} {
			if a := h.act(t, 404, "q", action, "key", "ended"); a.Error != want {
				t.Errorf("%s: %q", action, a.Error)
			}
		}
	})
}

// Pauses of queues and groups can end by themselves.
func TestAnswersToPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := priorityqueue.New(priorityqueue.Config[string]{
			Name: "q", MetricsProvider: h, Group: func(key string) string { return strings.Split(key, "/")[0] },
		})
		defer q.ShutDown()
		q.Add("acme/1")
		for _, c := range [][]string{
			{"Paused group acme for 15m.", "pause_group", "group", "acme", "for", "15m"},
			{"Resumed group acme.", "resume_group", "group", "acme"},
			{"Paused the queue for 1h 30m.", "pause", "for", "90m"},
		} {
			if a := h.act(t, 200, "q", c[1:]...); a.Text != c[0] {
				t.Errorf("%q, want %q", a.Text, c[0])
			}
		}
		if s := q.Stats(); !s.Paused || time.Until(s.PausedUntil) != 90*time.Minute {
			t.Errorf("paused %t until %v", s.Paused, s.PausedUntil)
		}
		wantBody(t, get(h, "?queue=q"), "paused for 1h 30m more</span>")
		h.act(t, 400, "q", "pause", "for", "soon")
		h.act(t, 400, "q", "pause", "for", "-1m")
	})
}

// An action as text has all that matters in a log.
func TestActionAsText(t *testing.T) {
	for want, a := range map[string]debug.Action{
		`retry orders key="acme/17" keys=1`: {Name: "retry", Queue: "orders", Key: "acme/17", Keys: 1},
		`forget inventory of="failing" errorContains="no space" keys=21: late`: {
			Name: "forget", Queue: "inventory", Of: "failing", ErrorContains: "no space", Keys: 21,
			Err: errors.New("late"),
		},
		`pause_group orders group="acme" for=15m0s`: {Name: "pause_group", Queue: "orders", Group: "acme",
			For: 15 * time.Minute},
	} {
		if got := fmt.Sprint(a); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A queue that nobody takes keys from, like that of a replica that waits to be the leader, is not in trouble
// because its keys are old.
func TestQueueThatNobodyWorks(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		follower := newRateLimited[string](t, "follower", h)
		follower.Add("key")
		time.Sleep(time.Minute)
		late := newRateLimited[string](t, "late", h)
		late.Add("taken")
		late.Get()
		late.Done("taken")
		late.Add("key")
		time.Sleep(11 * time.Minute)
		l := getJSON[list](t, h, "")
		if l.Queues[0].Name != "late" {
			t.Errorf("%+v", l.Queues)
		}
		wantBody(t, get(h, "?queue=follower"), "nobody takes keys</span>", `<dd><a href="#queued">12m</a>`)
		wantBody(t, get(h, "?queue=late"), `<dd class="bad"><a href="#queued">11m</a>`)
	})
}
