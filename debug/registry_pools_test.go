package debug_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// The pool of a queue is on its page, and with it why keys fail. It goes when it has ended.
func TestPoolsAppear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := &watcher{}
		h := newHandler(t, debug.Options{Metrics: metrics})
		q := newRateLimited[string](t, "disk", h)
		stop := start(t, worker.New(q, func(ctx context.Context, key string) error {
			switch key {
			case "runs":
				<-ctx.Done()
			case "fails":
				return errors.New("no space left\non device <b>")
			case "is given up":
				return worker.Terminal(errors.New("bad name"))
			}
			return nil
		}, worker.Options[string]{Workers: 3, MetricsProvider: h}))
		for _, key := range []string{"runs", "fails", "is given up", "fine"} {
			q.Add(key)
		}
		time.Sleep(time.Minute)
		d := getJSON[detail](t, h, "?queue=disk")
		if len(d.Queue.Pools) != 1 {
			t.Fatalf("pools: %+v", d)
		}
		p := d.Queue.Pools[0]
		if p.Name != "disk" || p.Wanted != 3 || p.Living != 3 || p.Busy != 1 || p.Handled != 3 || p.Failed != 2 ||
			p.Failing != 1 || p.GivenUp != 1 || p.Durations.Count() != 3 {
			t.Errorf("%+v", p)
		}
		if len(d.Running) != 1 || d.Running[0].Attempt != 1 {
			t.Errorf("running: %+v", d.Running)
		}
		if len(d.Failing) != 1 || len(d.Waiting) != 1 || d.Failing[0].Key != "fails" ||
			d.Failing[0].Error != `no space left\non device <b>` ||
			d.Failing[0].Attempt != 1 || time.Since(d.Failing[0].FailsSince) != time.Minute ||
			time.Until(d.Failing[0].Due) != 59*time.Minute ||
			d.Waiting[0].Error != d.Failing[0].Error {
			t.Errorf("failing: %+v, waiting: %+v", d.Failing, d.Waiting)
		}
		if len(d.GivenUp) != 1 || d.GivenUp[0].Key != "is given up" ||
			!strings.HasSuffix(d.GivenUp[0].Error, "bad name") {
			t.Errorf("given up: %+v", d.GivenUp)
		}
		wantBody(t, get(h, "?queue=disk"), "<dt>Workers busy</dt>", "1 of 3", "Failing</h2>", "fails",
			`no space left\non device &lt;b&gt;`,
			"Given up</h2>", "is given up", "bad name")
		wantBody(t, get(h, ""), "<b class=\"warn\">1 failing</b>", "<b class=\"bad\">1 given up</b>",
			`data-label="Workers">1 of 3</td>`)
		if strings.Join(metrics.pools, " ") != "disk" {
			t.Errorf("the metrics heard of %v", metrics.pools)
		}
		stop()
		if d := getJSON[list](t, h, ""); d.Registered != 0 {
			t.Errorf("after the end: %+v", d)
		}
	})
}

// A queue without a name is shown under the pool's, until the pool has ended or the queue is registered.
func TestQueueOfPool(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := workqueue.NewTypedRateLimitingQueue[string](nil)
		run := func() (stop func()) {
			return start(t, worker.New(q,
				func(context.Context, string) error { return worker.Terminal(errors.New("broken")) },
				worker.Options[string]{Name: "alone", MetricsProvider: h, KeepQueue: true}))
		}
		stop := run()
		q.Add("a")
		synctest.Wait()
		wantIDs(t, h, "", "alone")
		wantBody(t, get(h, ""), `data-label="Workers">0 of 1</td>`)
		wantBody(t, get(h, "?queue=alone"), "Given up</h2>", "broken", "Workers</h2>")
		stop()
		wantIDs(t, h, "", "")
		run()
		synctest.Wait()
		q.Add("b")
		synctest.Wait()
		for _, name := range []string{"another name", "alone"} {
			debug.Register(h, name, q)
			wantIDs(t, h, "", name)
			wantBody(t, get(h, "?queue="+queryEscape(name)), "Given up</h2>", "broken", "Workers</h2>")
		}
	})
}

// A queue with another provider and a pool with h is shown under its own name.
func TestQueueOfPoolWithAnotherProvider(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := newRateLimited[string](t, "orders", debug.Times{})
		start(t, worker.New(q, func(context.Context, string) error { return nil },
			worker.Options[string]{Name: "workers", MetricsProvider: h}))
		synctest.Wait()
		wantIDs(t, h, "", "orders")
	})
}

// The page of a queue says when its pool has listed its keys.
func TestListedKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		fails := true
		start(t, worker.New(newRateLimited[string](t, "sites", h),
			func(context.Context, string) error { return nil },
			worker.Options[string]{Name: "sites", MetricsProvider: h, Resync: time.Hour,
				List: func(context.Context) (iter.Seq[string], error) {
					if fails {
						fails = false
						return nil, errors.New("no list")
					}
					time.Sleep(1500 * time.Millisecond)
					return slices.Values([]string{"a", "b"}), nil
				}}))
		synctest.Wait()
		wantBody(t, get(h, "?queue=sites"), `sites has not listed its keys; <b class="warn">1 list failed</b>`)
		time.Sleep(3 * time.Second)
		wantBody(t, get(h, "?queue=sites"),
			`sites listed its keys on 2000-01-01 00:00:02 UTC; <b class="warn">1 list failed`)
	})
}

// A pool that was there before its queue was shown counts once from the first answer.
func TestPoolBeforeItsQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := workqueue.NewTypedRateLimitingQueue[int](nil)
		start(t, worker.New(q, func(context.Context, int) error { return worker.Terminal(errors.New("broken")) },
			worker.Options[int]{Name: "q", MetricsProvider: h}))
		fail := func(n int) {
			for key := range n {
				q.Add(key)
			}
			synctest.Wait()
		}
		fail(10)
		debug.Register(h, "q", q)
		fail(6)
		time.Sleep(12 * time.Second)
		if l := getJSON[list](t, h, ""); len(l.Queues) != 1 || perSecond(h, "q").Errors != 0.5 {
			t.Errorf("%+v", l.Queues)
		}
	})
}

// A key that a pool has given up and that fails again, in another one, is failing. If it was added again, the
// list of given-up keys says where it is.
func TestKeyOfTwoPools(t *testing.T) {
	h := newHandler(t, debug.Options{})
	q := newRateLimited[string](t, "q", h)
	givenUp := []worker.FailedKey[any]{{Key: "a", Err: "bad name"}, {Key: "b"}}
	givenUp[1].Attempt = 5
	showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "q", GivenUpKeys: 2}, GivenUp: givenUp}, q)
	q.Add("a")
	q.Get()
	q.(workqueue.ExtendedRateLimiting[string]).Fail(t.Context(), "a", workqueue.Failure{Err: errors.New("timeout")})
	q.Done("a")
	q.Add("b")
	d := getJSON[detail](t, h, "?queue=q")
	if len(d.Failing) != 1 || d.Failing[0].Error != "timeout" || len(d.GivenUp) != 1 ||
		d.GivenUp[0].State != "queued" {
		t.Errorf("%+v", d)
	}
	if c := count(t, h, "given_up"); c.Count != 1 {
		t.Errorf("%+v given up, want one: the other fails again", c)
	}
	// To give up a key forgets its failures.
	if body := get(h, "?queue=q&key=b").Body.String(); strings.Contains(body, "attempt 6") {
		t.Error("the next call of a key that was added again is not its first")
	}
}

// The keys of several pools are in one order: those held longest first, and those given up last first.
func TestOrderOfKeysOfPools(t *testing.T) {
	c := newClock()
	h := newHandler(t, debug.Options{Clock: c})
	q := newQueue[string](t, "q", c)
	debug.Register(h, "q", q)
	for pool := range 2 {
		at := c.Now().Add(-time.Duration(pool+1) * time.Hour)
		name := []string{"first", "second"}[pool]
		showPool(h, worker.Snapshot[any]{
			Stats:   worker.Stats{Name: name, Busy: 1, GivenUpKeys: 1},
			Running: []worker.RunningKey[any]{{Key: name, Started: at}},
			GivenUp: []worker.FailedKey[any]{{Key: name + " lost", Time: at.Add(time.Duration(2*pool) * time.Hour)}},
		}, q)
	}
	d := getJSON[detail](t, h, "?queue=q")
	if len(d.Running) != 2 || d.Running[0].Key != "second" {
		t.Errorf("running: %+v", d.Running)
	}
	if len(d.GivenUp) != 2 || d.GivenUp[0].Key != "second lost" {
		t.Errorf("given up: %+v", d.GivenUp)
	}
}

// The page of a key in the queue says that the queue keeps it as given up besides. Lists and pages offer only
// what suits a key.
func TestGivenUpKeyThatWasAddedAgain(t *testing.T) {
	h := newAudited(t)
	inQueue := workqueue.KeySnapshot[any]{Key: "a", State: workqueue.KeyProcessing}
	inspect(h, "q", operate.Inspector{
		Stats:       noStats,
		Add:         func(any) {},
		Remove:      func(any) bool { return true },
		SnapshotKey: func(any) (workqueue.KeySnapshot[any], bool) { return inQueue, true },
		Snapshot: func(int) workqueue.Snapshot[any] {
			gone := workqueue.KeySnapshot[any]{Key: "b", Failures: workqueue.Failures{Count: 1, Err: "broken"}}
			return workqueue.Snapshot[any]{
				Processing: []workqueue.KeySnapshot[any]{inQueue}, Failing: []workqueue.KeySnapshot[any]{gone},
			}
		},
		GivenUp: func(int) []operate.GivenUpKey[any] {
			return []operate.GivenUpKey[any]{{Key: "a", Attempts: 4, Err: "too large"}}
		},
		ForgetGivenUp: func(any) bool { return true },
	})
	showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "q"}})
	wantBody(t, get(h, linksToKeys(h, "?queue=q&state=processing")[0]), "too large", `data-action="forget"`)
	// Another process has the key, so that no pool of this one can cancel its call.
	if body := get(h, "?queue=q&state=processing").Body.String(); strings.Contains(body, `data-action="cancel"`) {
		t.Error("a call of another process can be canceled")
	}
	if body := get(h, "?queue=q&state=failing").Body.String(); strings.Contains(body, `data-action="remove"`) {
		t.Error("a key that is not in the queue can be removed")
	}
}
