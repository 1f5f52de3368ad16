package debug_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// watcher notes what it hears of, as a provider of metrics does.
type watcher struct {
	debug.Times
	bounds                         []float64
	queues, pools, inspected, keys []string
}

func (w *watcher) HistogramBounds() []float64 { return w.bounds }
func (w *watcher) WatchQueue(name string, _ func() workqueue.Stats) {
	w.queues = append(w.queues, name)
}
func (w *watcher) InspectQueue(name string, _ workqueue.Inspector) {
	w.inspected = append(w.inspected, name)
}
func (w *watcher) WatchPool(name string, _ func() worker.Stats) { w.pools = append(w.pools, name) }
func (w *watcher) WatchPoolKeys(name string, _ func(int) worker.Snapshot[any]) {
	w.keys = append(w.keys, name)
}

// Queues of every kind appear once each, by themselves, under the name that they have.
func TestQueuesAppear(t *testing.T) {
	metrics := &watcher{bounds: []float64{1, 2}}
	h := newHandler(t, debug.Options{Metrics: metrics})
	fifo := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "fifo", MetricsProvider: h})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: "delaying", MetricsProvider: h})
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
	limiting := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "limiting", MetricsProvider: h})
	priority := priorityqueue.New(priorityqueue.Config[string]{Name: "priority", MetricsProvider: h})
	workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{MetricsProvider: h}) // without a name
	for _, q := range []workqueue.TypedInterface[string]{fifo, delaying, limiting, priority} {
		defer q.ShutDown()
		q.Add("key of it")
	}
	limiting.AddRateLimited("fails")
	if l := getJSON[list](t, h, "?sort=name"); l.ids() != "delaying fifo limiting priority" {
		t.Errorf("there are %s", l.ids())
	}
	for _, name := range []string{"fifo", "delaying", "limiting", "priority"} {
		d := getJSON[detail](t, h, "?queue="+name)
		if len(d.Queued) != 1 || d.Queued[0].Key != "key of it" {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if d := getJSON[detail](t, h, "?queue=limiting"); len(d.Failing) != 1 || d.Failing[0].Requeues != 1 {
		t.Errorf("the outermost layer was not shown: %+v", d)
	}
	if got := strings.Join(metrics.queues, " "); got != "fifo delaying limiting priority" {
		t.Errorf("the metrics heard of %s", got)
	}
	if got := strings.Join(metrics.inspected, " "); got != "fifo delaying limiting priority" {
		t.Errorf("the provider below heard of the keys of %s", got)
	}
	if bounds := fifo.Stats().Latency.Bounds; len(bounds) != 2 {
		t.Errorf("the bounds are %v", bounds)
	}
}

// A queue that was put on top of another one takes its place, and Register gives a new name to what is shown.
func TestLayersAndNames(t *testing.T) {
	h := newHandler(t, debug.Options{})
	below := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Name: "below", MetricsProvider: h})
	defer below.ShutDown()
	q := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[int]{
		Name: "above", MetricsProvider: h, DelayingQueue: below,
	})
	if l := getJSON[list](t, h, ""); l.ids() != "above" {
		t.Errorf("there are %s", l.ids())
	}
	remove := debug.Register(h, "other name", q)
	if l := getJSON[list](t, h, ""); l.ids() != "other name" {
		t.Errorf("there are %s", l.ids())
	}
	remove()
	if l := getJSON[list](t, h, ""); l.Registered != 0 {
		t.Errorf("there are %s", l.ids())
	}
}

type poolsOf struct {
	Queue struct {
		Pools []struct {
			Name                         string
			Wanted, Living, Busy         int
			Handled, Failed, Failing     int
			GivenUp                      int `json:"given_up"`
			Handler                      struct{ Count int }
			Panicked, Requeued, TimedOut int
		}
	}
	Running, Failing, Waiting []failedKey
	GivenUp                   []failedKey `json:"given_up"`
}

type failedKey struct {
	Key, Error         string
	Attempt            int
	FailedAt           time.Time `json:"failed_at"`
	Due                time.Time
	State              string
	Priority, Requeues int
	Group              string
}

// The pool of a queue is on its page, and with it why keys fail. It goes when it has ended.
func TestPoolsAppear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := &watcher{}
		h := debug.NewHandler(debug.Options{Metrics: metrics})
		defer h.Close()
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
		q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "disk", MetricsProvider: h})
		release := make(chan struct{})
		pool := worker.New(q, func(_ context.Context, key string) error {
			switch key {
			case "runs":
				<-release
			case "fails":
				return errors.New("no space left\non device <b>")
			case "is given up":
				return worker.Terminal(errors.New("bad name"))
			}
			return nil
		}, worker.Options[string]{Workers: 3, MetricsProvider: h})
		done := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- pool.Run(ctx) }()
		for _, key := range []string{"runs", "fails", "is given up", "fine"} {
			q.Add(key)
		}
		time.Sleep(time.Minute)
		d := getJSON[poolsOf](t, h, "?queue=disk")
		if len(d.Queue.Pools) != 1 {
			t.Fatalf("pools: %+v", d)
		}
		p := d.Queue.Pools[0]
		if p.Name != "disk" || p.Wanted != 3 || p.Living != 3 || p.Busy != 1 || p.Handled != 3 || p.Failed != 2 ||
			p.Failing != 1 || p.GivenUp != 1 || p.Handler.Count != 3 {
			t.Errorf("%+v", p)
		}
		if len(d.Running) != 1 || d.Running[0].Attempt != 1 {
			t.Errorf("running: %+v", d.Running)
		}
		if len(d.Failing) != 1 || len(d.Waiting) != 1 || d.Failing[0].Key != "fails" || d.Failing[0].Error != `no space left\non device <b>` ||
			d.Failing[0].Attempt != 1 || time.Since(d.Failing[0].FailedAt) != time.Minute || time.Until(d.Failing[0].Due) != 59*time.Minute ||
			d.Waiting[0].Error != d.Failing[0].Error {
			t.Errorf("failing: %+v, waiting: %+v", d.Failing, d.Waiting)
		}
		if len(d.GivenUp) != 1 || d.GivenUp[0].Key != "is given up" || !strings.HasSuffix(d.GivenUp[0].Error, "bad name") {
			t.Errorf("given up: %+v", d.GivenUp)
		}
		wantBody(t, get(h, "?queue=disk"), "<dt>Workers busy</dt>", "1 of 3", "Failing</h2>", "fails", `no space left\non device &lt;b&gt;`,
			"Given up</h2>", "is given up", "bad name")
		wantBody(t, get(h, ""), "<b class=\"warn\">1 failing</b>", "<b class=\"bad\">1 given up</b>", `data-label="Workers">1 of 3</td>`)
		if strings.Join(metrics.pools, " ") != "disk" || strings.Join(metrics.keys, " ") != "disk" {
			t.Errorf("the metrics heard of %v and %v", metrics.pools, metrics.keys)
		}
		close(release)
		cancel()
		<-done
		if d := getJSON[list](t, h, ""); d.Registered != 0 {
			t.Errorf("after the end: %+v", d)
		}
	})
}

// A pool whose queue is not known has a page of its own.
func TestPoolAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		q := workqueue.NewTypedRateLimitingQueue[string](nil)
		pool := worker.New(q, func(context.Context, string) error { return worker.Terminal(errors.New("broken")) },
			worker.Options[string]{Name: "alone", MetricsProvider: h})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- pool.Run(ctx) }()
		q.Add("a")
		synctest.Wait()
		l := getJSON[list](t, h, "")
		if len(l.Queues) != 1 || l.Queues[0].Name != "alone" {
			t.Fatalf("%+v", l)
		}
		page := "?queue=" + queryEscape(l.Queues[0].ID)
		wantBody(t, get(h, ""), "a pool whose queue is not known here")
		wantBody(t, get(h, page), "Given up</h2>", "broken", "Workers</h2>")
		debug.Register(h, "alone", q)
		if l := getJSON[list](t, h, ""); l.ids() != "alone" {
			t.Errorf("with its queue: %+v", l)
		}
		cancel()
		<-done
	})
}

// Without anything to show there is no goroutine, and what has ended is let go of.
func TestPoolThatHasEndedGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		q := workqueue.NewTypedRateLimitingQueue[string](nil)
		pool := worker.New(q, func(context.Context, string) error { return nil }, worker.Options[string]{Name: "short", MetricsProvider: h})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := pool.Run(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		// The bubble ends only if no goroutine is left.
	})
}

// clientGo is a limiter as those of client-go are: it cannot list its keys.
type clientGo struct {
	workqueue.TypedRateLimiter[string]
}

// Where failing keys cannot be listed, the page says so, and shows the requeues of the keys that it has.
func TestFailingKeysThatCannotBeListed(t *testing.T) {
	limiter := func() clientGo {
		return clientGo{workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)}
	}
	h := newHandler(t, debug.Options{})
	layered := workqueue.NewTypedRateLimitingQueueWithConfig[string](limiter(), workqueue.TypedRateLimitingQueueConfig[string]{Name: "layered", MetricsProvider: h})
	priority := priorityqueue.New(priorityqueue.Config[string]{Name: "priority", MetricsProvider: h, RateLimiter: limiter()})
	for name, q := range map[string]workqueue.TypedRateLimitingInterface[string]{"layered": layered, "priority": priority} {
		defer q.ShutDown()
		q.AddRateLimited("fails")
		wantBody(t, get(h, "?queue="+name), "Failing</h2>", "Cannot be listed", "Waiting</h2>", `data-label="Requeues">1<`)
	}
}

// showPool makes h show a pool.
func showPool(h *debug.Handler, s *worker.Snapshot[any]) {
	h.WatchPoolKeys(s.Stats.Name, func(int) worker.Snapshot[any] { return *s })
}

// Queues that have one name show the same pools, which count once.
func TestPoolsOfQueuesWithOneName(t *testing.T) {
	h := newHandler(t, debug.Options{})
	for range 4 {
		debug.Register(h, "tenant", workqueue.NewTyped[int]())
	}
	showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "tenant", Failing: 1}, DroppedKeys: 2})
	showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "tenant", Failing: 10}})
	l := getJSON[struct {
		Failing, Queues any
		GivenUp         int `json:"given_up"`
	}](t, h, "")
	if l.Failing != 11.0 || l.GivenUp != 2 {
		t.Errorf("%+v", l)
	}
	wantBody(t, get(h, "?queue=tenant"), "4 queues have the name of these pools")
}

// Given up are the keys that are so now, and not all that ever were.
func TestGivenUpKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
		q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: h})
		err := worker.Terminal(errors.New("bad name"))
		pool := worker.New(q, func(context.Context, string) error { return err }, worker.Options[string]{MetricsProvider: h})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- pool.Run(ctx) }()
		check := func(when string, givenUp, failing int) {
			t.Helper()
			synctest.Wait()
			d := getJSON[poolsOf](t, h, "?queue=q")
			l := getJSON[struct {
				Failing int
				GivenUp int `json:"given_up"`
			}](t, h, "")
			if len(d.GivenUp) != givenUp || len(d.Failing) != failing || l.GivenUp != givenUp || l.Failing != failing || d.Queue.Pools[0].GivenUp != givenUp {
				t.Errorf("%s: %+v, in all %+v", when, d, l)
			}
			if red := strings.Contains(get(h, "").Body.String(), `class="bad"`); red != (givenUp > 0) {
				t.Errorf("%s: red %t", when, red)
			}
		}
		for range 3 {
			q.Add("a")
			q.Add("b")
			synctest.Wait()
		}
		check("two keys, three times", 2, 0)
		err = errors.New("no answer")
		q.Add("a")
		check("one fails again", 1, 1)
		err = nil
		q.Add("a")
		q.Add("b")
		check("after success", 0, 0)
		cancel()
		<-done
	})
}

// A key that one pool has given up and that fails in another one is failing.
func TestKeyOfTwoPools(t *testing.T) {
	h := newHandler(t, debug.Options{})
	q := workqueue.NewTyped[string]()
	debug.Register(h, "q", q)
	a := func(err string) []worker.FailedKey[any] { return []worker.FailedKey[any]{{Key: "a", Err: err}} }
	showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "q"}, Failing: a("timeout")})
	showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "q"}, Dropped: a("bad name"), DroppedKeys: 1})
	d := getJSON[poolsOf](t, h, "?queue=q")
	if len(d.Failing) != 1 || d.Failing[0].Error != "timeout" || len(d.GivenUp) != 0 {
		t.Errorf("%+v", d)
	}
	q.Add("b")
	showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "q"}, Dropped: []worker.FailedKey[any]{{Key: "b"}}})
	if d := getJSON[poolsOf](t, h, "?queue=q"); len(d.GivenUp) != 1 || d.GivenUp[0].State != "queued" {
		t.Errorf("given up and added again: %+v", d.GivenUp)
	}
}

// When a pool ends and another one goes on with its queue, the page says why keys are failing.
func TestErrorsOfAPoolThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
		q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: h})
		defer q.ShutDown()
		q.Add("a")
		run := func() (stop func()) {
			pool := worker.New(q, func(context.Context, string) error { return errors.New("the disk is full") },
				worker.Options[string]{MetricsProvider: h, KeepQueue: true})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- pool.Run(ctx) }()
			time.Sleep(time.Minute)
			return func() {
				cancel()
				<-done
				time.Sleep(time.Minute)
			}
		}
		run()()
		for _, what := range []string{"without a pool", "with the next one"} {
			d := getJSON[poolsOf](t, h, "?queue=q")
			if len(d.Failing) != 1 || d.Failing[0].Error != "the disk is full" || d.Failing[0].Requeues != 1 {
				t.Errorf("%s: %+v", what, d)
			}
			wantBody(t, get(h, "?queue=q"), "Failing</h2>", "the disk is full")
			defer run()()
		}
		q.Forget("a")
		if d := getJSON[poolsOf](t, h, "?queue=q"); len(d.Failing) != 0 {
			t.Errorf("after Forget: %+v", d.Failing)
		}
		if k := find(t, h, "q", "a").Found.Keys; len(k) != 1 || k[0].State != "waiting" || k[0].Error != "" {
			t.Errorf("after Forget, found: %+v", k)
		}
	})
}
