package debug_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func TestNamesAndIDs(t *testing.T) {
	h := newHandler(t, debug.Options{})
	add := func(name string) func() { return debug.Register(h, name, workqueue.NewTyped[int]()) }
	add("b")
	remove := add("a")
	add("a")
	add("a~2")
	add("")
	debug.Register(h, "", newQueue[int](t, "its own", newClock()))
	add(strings.Repeat("long", 1000) + "\xff")
	add("\x00<b>")
	l := getJSON[list](t, h, "")
	names := map[string]int{}
	for _, q := range l.Queues {
		names[q.Name]++
		// Each is found under its id.
		if d := getJSON[detail](t, h, "?queue="+queryEscape(q.ID)); d.Queue.Name != q.Name {
			t.Errorf("under %q is %q, want %q", q.ID, d.Queue.Name, q.Name)
		}
	}
	want := map[string]int{"a": 2, "b": 1, "a~2": 1, "": 1, "its own": 1, strings.Repeat("long", 32) + "…": 1,
		`\x00<b>`: 1}
	if fmt.Sprint(names) != fmt.Sprint(want) || l.Registered != 8 {
		t.Errorf("%d names: %v, want %v", l.Registered, names, want)
	}
	wantBody(t, get(h, ""), "(no name)", `\x00&lt;b&gt;`)

	remove()
	remove()
	if l := getJSON[list](t, h, ""); l.Registered != 7 || strings.Contains(" "+l.ids()+" ", " a ") {
		t.Errorf("after it was unregistered, there are %s", l.ids())
	}
	// The name is free again, and the old function does not remove the new queue.
	add("a")
	remove()
	if l := getJSON[list](t, h, ""); l.Registered != 8 {
		t.Errorf("an old unregister took away a new queue, and left %s", l.ids())
	}
	// A queue that is made anew takes the place of the old one, and links to it stay.
	for range 2 {
		q := workqueue.NewTyped[int]()
		debug.Register(h, "restarted", q)
		wantIDs(t, h, "?search=restarted", "restarted")
		q.ShutDown()
	}
}

// A queue that has ended is let go of, even if no page is asked for.
func TestQueueThatHasEndedGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := workqueue.NewTypedRateLimitingQueue[int](nil)
		debug.Register(h, "q", q)
		q.Add(1)
		q.ShutDown()
		registered := func() int {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			return h.Shown()
		}
		if registered() != 1 {
			t.Fatal("a queue with a key that is queued has gone")
		}
		wantBody(t, get(h, ""), "shutting down")
		q.Get()
		if registered() != 1 {
			t.Fatal("a queue with a key that is held has gone")
		}
		q.Done(1)
		if registered() != 0 {
			t.Fatal("a queue that has ended is still there")
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		remove := debug.Register(h, "a", workqueue.NewTyped[int]())
		h.Close()
		h.Close()
		debug.Register(h, "b", workqueue.NewTyped[int]())()
		debug.Register(h, "c", workqueue.NewTyped[int]())
		remove()
		if l := getJSON[list](t, h, ""); l.Registered != 0 {
			t.Errorf("after Close there are %s", l.ids())
		}
		wantBody(t, get(h, ""), "No queue is registered")
	})
}

// theirs is a queue of somebody else's.
type theirs struct{ workqueue.TypedInterface[int] }

// Such a queue must be made an Extended first, and Register says how.
func TestForeignQueue(t *testing.T) {
	h := newHandler(t, debug.Options{})
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "package foreign") {
			t.Errorf("panic %q", s)
		}
	}()
	debug.Register(h, "theirs", theirs{workqueue.NewTyped[int]()})
}

// Everything at once, for the race detector.
func TestConcurrently(t *testing.T) {
	c := newClock()
	h := newHandler(t, debug.Options{Clock: c})
	q := newQueue[string](t, "steady", newClock())
	debug.Register(h, "", q)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 300 {
			c.Step(5 * time.Second)
			runtime.Gosched()
		}
	})
	for w := range 3 {
		wg.Go(func() {
			for n := range 30 {
				mine := workqueue.NewTypedRateLimitingQueue[int](nil)
				remove := debug.Register(h, fmt.Sprint("mine", n), mine)
				mine.Add(w)
				q.AddRateLimited(fmt.Sprint(w, n))
				q.Add(fmt.Sprint(w, n))
				get(h, "")
				get(h, "?queue=steady&format=json")
				get(h, "?queue=mine1")
				mine.ShutDown()
				remove()
			}
		})
	}
	wg.Wait()
	wantIDs(t, h, "", "steady")
}

// watcher notes what it hears of, as a provider of metrics does.
type watcher struct {
	debug.Times
	bounds                   []float64
	queues, pools, inspected []string
}

func (w *watcher) HistogramBounds() []float64 { return w.bounds }
func (w *watcher) WatchQueue(name string, _ func() workqueue.Stats) {
	w.queues = append(w.queues, name)
}
func (w *watcher) InspectQueue(name string, _ any, _ workqueue.Extended[any]) {
	w.inspected = append(w.inspected, name)
}
func (w *watcher) InspectPool(name string, _ worker.Inspector) { w.pools = append(w.pools, name) }

// Queues of every kind appear once each, by themselves, under the name that they have.
func TestQueuesAppear(t *testing.T) {
	metrics := &watcher{bounds: []float64{1, 2}}
	h := newHandler(t, debug.Options{Metrics: metrics})
	fifo := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "fifo", MetricsProvider: h})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[string]{Name: "delaying", MetricsProvider: h})
	limiting := newRateLimited[string](t, "limiting", h)
	priority := priorityqueue.New(priorityqueue.Config[string]{Name: "priority", MetricsProvider: h})
	workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{MetricsProvider: h}) // without a name
	for _, q := range []workqueue.TypedInterface[string]{fifo, delaying, limiting, priority} {
		defer q.ShutDown()
		q.Add("key of it")
	}
	fail(t, limiting, "fails")
	for _, q := range getJSON[list](t, h, "").Queues {
		if q.ID != q.Name {
			t.Errorf("%+v", q)
		}
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
	below := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Name: "below",
		MetricsProvider: h})
	defer below.ShutDown()
	q := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[int]{
		Name: "above", MetricsProvider: h, DelayingQueue: below,
	})
	wantIDs(t, h, "", "above")
	remove := debug.Register(h, "other name", q)
	wantIDs(t, h, "", "other name")
	remove()
	if l := getJSON[list](t, h, ""); l.Registered != 0 {
		t.Errorf("there are %s", l.ids())
	}
}

// A queue that its pool has put in the place of the one below stays when the pool ends.
func TestPoolOfUpperLayer(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		below := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Name: "below",
			MetricsProvider: h})
		defer below.ShutDown()
		q := workqueue.NewTypedRateLimitingQueueWithConfig(nil,
			workqueue.TypedRateLimitingQueueConfig[int]{DelayingQueue: below})
		stop := start(t, worker.New(q, func(context.Context, int) error { return nil },
			worker.Options[int]{Name: "pool", MetricsProvider: h, KeepQueue: true}))
		synctest.Wait()
		wantIDs(t, h, "", "below")
		wantBody(t, get(h, "?queue=below"), "Workers</h2>")
		stop()
		wantIDs(t, h, "", "below")
	})
}

// Close waits for a call that still runs, and a page is not made of a queue that was closed.
func TestCloseWaitsForQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		var returned atomic.Bool
		inspect(h, "slow", operate.Inspector{Stats: func() workqueue.Stats {
			if returned.Load() {
				time.Sleep(10 * time.Second)
			}
			returned.Store(true)
			return workqueue.Stats{}
		}})
		time.Sleep(5 * time.Second)
		began := time.Now()
		synctest.Wait()
		h.Close()
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("Close took %v", d)
		}
		began = time.Now()
		if wantIDs(t, h, "", ""); time.Since(began) != 0 {
			t.Errorf("a list after Close took %v", time.Since(began))
		}
	})
}
