package debug_test

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// withQueue calls f in a bubble, with a handler and a queue of it. The handler takes its samples every five
// seconds afterwards.
func withQueue(t *testing.T, f func(t *testing.T, h *debug.Handler, q *workqueue.Typed[int])) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "q", MetricsProvider: h})
		defer q.ShutDown()
		f(t, h, q)
	})
}

// pass has n keys added, taken and done, each held for that long.
func pass(q *workqueue.Typed[int], n int, held time.Duration) {
	for key := range n {
		q.Add(key)
		q.Get()
		time.Sleep(held)
		q.Done(key)
	}
}

// What comes and goes between two samples is in no depth, but in the rates.
func TestBurstBetweenSamples(t *testing.T) {
	withQueue(t, func(t *testing.T, h *debug.Handler, q *workqueue.Typed[int]) {
		time.Sleep(12 * time.Second)
		pass(q, 1000, time.Millisecond)
		time.Sleep(19 * time.Second) // now at 32 s
		history := h.History("q")
		want := []debug.Point{{}, {}, {Adds: 200, Dones: 200}, {}, {}, {}}
		if !slices.Equal(history, want) {
			t.Errorf("%v, want %v", history, want)
		}
		if m := perSecond(h, "q"); m.Adds != 1000.0/32 || m.Dones != 1000.0/32 {
			t.Errorf("rates of the last minute: %+v", m)
		}
		time.Sleep(time.Minute)
		if m := perSecond(h, "q"); m.Adds != 0 || h.History("q")[2].Adds != 200 {
			t.Errorf("after a minute: %+v, %v", m, h.History("q"))
		}
		time.Sleep(10 * time.Minute)
		if all := h.History("q"); len(all) != 120 || slices.ContainsFunc(all, func(p debug.Point) bool { return p.Adds > 0 }) {
			t.Errorf("after ten minutes: %v", all)
		}
		pass(q, 600, 0)
		time.Sleep(10 * time.Second)
		if m := perSecond(h, "q"); math.Round(m.Adds) != 10 {
			t.Errorf("600 adds in the last minute: %+v", m)
		}
	})
}

// The times of the last minutes do not have those of an hour ago in them.
func TestRecentTimes(t *testing.T) {
	withQueue(t, func(t *testing.T, h *debug.Handler, q *workqueue.Typed[int]) {
		pass(q, 10, 5*time.Second)
		time.Sleep(time.Hour)
		pass(q, 10, 5*time.Millisecond)
		wantBody(t, get(h, "?queue=q"), "Times</h2>", "of the last 5m", "In work</th>", `data-label="Keys">10<`,
			">5 ms<", ">≤ 10 ms<")
	})
}

// A bound is shown as what it is, and not rounded down, also if it was multiplied by ten until it was there.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		bounds []float64
		held   time.Duration
		want   string
	}{
		{nil, 100 * time.Microsecond, "≤ 100 µs"},
		{[]float64{9.999999999999999e-05, 1}, 90 * time.Microsecond, "≤ 100 µs"},
		{[]float64{0.0015, 1}, time.Millisecond, "≤ 1.5 ms"},
		{[]float64{0.001, 1000}, time.Second, "≤ 16m 40s"},
		{[]float64{1, 2}, 3 * time.Second, "&gt; 2 s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, debug.Options{Metrics: &watcher{bounds: c.bounds}})
			q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "q", MetricsProvider: h})
			pass(q, 10, c.held)
			cell := ">" + c.want + "<" // of half, 90 and 99 %
			wantBody(t, get(h, "?queue=q"), "In work</th>", cell, cell, cell)
		})
	}
}

// A chart has one axis from zero to its greatest value, over the last ten minutes, and its labels say what is
// where. The last sample is at the right edge.
func TestCharts(t *testing.T) {
	withQueue(t, func(t *testing.T, h *debug.Handler, q *workqueue.Typed[int]) {
		wantBody(t, get(h, "?queue=q"), `aria-label="Keys over the last 10m"`,
			`<span>0</span><span>0</span>`)
		pass(q, 10, 97*time.Second)
		time.Sleep(5 * time.Second)
		wantBody(t, get(h, "?queue=q"), `aria-label="Mean times over the last 10m;`, `in work now 1m 37s, at most 1m 37s"`)
		time.Sleep(time.Minute) // Nothing is counted.
		wantBody(t, get(h, "?queue=q"), `in work now 1m 37s, at most 1m 37s"`)
		for n := range 70 {
			q.Add(n)
		}
		time.Sleep(10 * time.Minute)
		wantBody(t, get(h, "?queue=q"), `aria-label="Keys over the last 10m; queued now 70, at most 70;`,
			`class="a" d="M`, `L300,`,
			`<span>10m ago</span><span>5m ago</span><span>now</span>`)
		wantBody(t, get(h, "?queue=q"), `<span>70</span><span>0</span>`)
	})
}

// A tick that was late makes the next one early, and no high rate of it.
func TestEarlyTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newClock()
		h := newHandler(t, debug.Options{Clock: clock})
		q := newQueue[int](t, "q", clock)
		debug.Register(h, "", q)
		clock.Step(9990 * time.Millisecond)
		synctest.Wait()
		q.Add(1)
		clock.Step(20 * time.Millisecond)
		synctest.Wait()
		if all := h.History("q"); len(all) != 2 || all[1].Adds != 1 {
			t.Errorf("%+v", all)
		}
	})
}

// When one of two pools ends, the failures and the delays of the other are no news. The ended pool goes, no
// matter what name it was shown under.
func TestErrorsOfPoolThatEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var ended atomic.Bool
		inspect(h, "q", operate.Inspector{Stats: func() workqueue.Stats { return workqueue.Stats{Name: "q"} }})
		asked := 0
		for _, failed := range []uint64{40_000, 39_000} {
			i := inspectorOf(func(int) worker.Snapshot[any] {
				ends := failed == 40_000 && ended.Load()
				if ends {
					asked++
				}
				delays := &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{failed, 0}}
				return worker.Snapshot[any]{Stats: worker.Stats{
					Name: "another name", Failed: failed, RetryDelays: delays, Ended: ends,
				}}
			})
			i.Queue.Queue = queueNamed("q")
			h.InspectPool("q", i)
		}
		time.Sleep(12 * time.Minute)
		wantBody(t, get(h, "?queue=q"), "Until a retry</th>", `data-label="Keys">0<`)
		ended.Store(true)
		time.Sleep(time.Minute)
		if body := get(h, "?queue=q").Body.String(); strings.Contains(body, "Until a retry") {
			t.Error("the table of times has those since the pool began")
		}
		d, history := getJSON[detail](t, h, "?queue=q"), h.History("q")
		if slices.ContainsFunc(history[1:], func(p debug.Point) bool { return p.Errors != 0 }) {
			t.Errorf("%+v", history)
		}
		if asked > 1 || len(d.Queue.Pools) != 1 {
			t.Errorf("a pool that has ended was asked %d times, and there are %+v", asked, d.Queue.Pools)
		}
	})
}
