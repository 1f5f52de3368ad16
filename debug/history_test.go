package debug_test

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/leasing"
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

// What comes and goes between two samples is in no depth, but in the rates and the times.
func TestBurstBetweenSamples(t *testing.T) {
	withQueue(t, func(t *testing.T, h *debug.Handler, q *workqueue.Typed[int]) {
		time.Sleep(12 * time.Second)
		pass(q, 1000, time.Millisecond)
		time.Sleep(19 * time.Second) // now at 32 s
		d := getJSON[detail](t, h, "?queue=q")
		if slices.Max(d.History.queued()) != 0 {
			t.Errorf("queued %v", d.History.queued())
		}
		if want := []float64{0, 0, 200, 0, 0, 0, 0}; !slices.Equal(d.History.adds(), want) ||
			!slices.Equal(d.History.dones(), want) {
			t.Errorf("adds %v, dones %v, want %v", d.History.adds(), d.History.dones(), want)
		}
		if w := d.History[2].Work; math.Abs(w-0.001) > 1e-6 || d.History[3].Work != 0 {
			t.Errorf("work %v", d.History)
		}
		if m := d.Queue.Minute; m.Adds != 1000.0/32 || m.Dones != 1000.0/32 {
			t.Errorf("rates of the last minute: %+v", m)
		}
		time.Sleep(time.Minute)
		if d := getJSON[detail](t, h, "?queue=q"); d.Queue.Minute.Adds != 0 || d.History.adds()[2] != 200 {
			t.Errorf("after a minute: %+v, %v", d.Queue.Minute, d.History.adds())
		}
		time.Sleep(10 * time.Minute)
		if d := getJSON[detail](t, h, "?queue=q"); len(d.History.adds()) != 121 || slices.Max(d.History.adds()) != 0 {
			t.Errorf("after ten minutes: %v", d.History.adds())
		}
		pass(q, 600, 0)
		time.Sleep(10 * time.Second)
		if d := getJSON[detail](t, h, "?queue=q"); math.Round(d.Queue.Minute.Adds) != 10 {
			t.Errorf("600 adds in the last minute: %+v", d.Queue.Minute)
		}
	})
}

// A page that takes long may have read a queue before a sample of it. What was counted in between is not a
// restart.
func TestPageThatIsOlderThanASample(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var adds atomic.Uint64
		var slow atomic.Bool
		inspect(h, "q", workqueue.Inspector{Stats: func() workqueue.Stats {
			st := workqueue.Stats{Name: "q", Adds: adds.Load()}
			if slow.Swap(false) {
				adds.Add(1)
				time.Sleep(6 * time.Second)
			}
			return st
		}, SnapshotKey: func(any) (k workqueue.KeySnapshot[any], ok bool) { return k, false },
			SnapshotKeys: func() iter.Seq[workqueue.KeySnapshot[any]] {
				return func(func(workqueue.KeySnapshot[any]) bool) {
					adds.Add(1)
					time.Sleep(6 * time.Second)
				}
			}})
		adds.Store(600_000)
		time.Sleep(2*time.Minute + time.Second) // between two samples
		slow.Store(true)
		l := getJSON[list](t, h, "")
		if rate := l.Queues[0].Minute.Adds; rate > 0.1 {
			t.Errorf("one add in the last minute looks like %v a second", rate)
		}
		time.Sleep(10 * time.Second)
		d := getJSON[detail](t, h, "?queue=q&key=none") // searches during a sample
		if rate := d.History.adds()[len(d.History.adds())-1]; rate > 1 {
			t.Errorf("one add looks like %v a second", rate)
		}
	})
}

// Without times, dones are what was added and is not there any more.
func TestDonesWithoutTimes(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := workqueue.NewTyped[int]()
		debug.Register(h, "q", q)
		pass(q, 10, 0)
		q.Add(1)
		q.Add(2)
		q.Get()
		q.Add(1)
		time.Sleep(10 * time.Second)
		if d := getJSON[detail](t, h, "?queue=q"); d.Queue.Minute.Dones != 1 || d.Queue.Minute.Adds != 1.3 {
			t.Errorf("%+v", d.Queue.Minute)
		}
	})
}

// The times of the last minutes do not have those of an hour ago in them.
func TestRecentTimes(t *testing.T) {
	withQueue(t, func(t *testing.T, h *debug.Handler, q *workqueue.Typed[int]) {
		pass(q, 10, 5*time.Second)
		time.Sleep(time.Hour)
		pass(q, 10, 5*time.Millisecond)
		r := getJSON[detail](t, h, "?queue=q").Recent
		if r.Work.Count != 10 || math.Abs(r.Work.Mean-0.005) > 1e-9 || r.Work.Most != 0.01 || r.Covers < 300 ||
			r.Covers > 600 {
			t.Errorf("%+v", r)
		}
		wantBody(t, get(h, "?queue=q"), "Times</h2>", "In work</th>", "5 ms", "≤ 10 ms")
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

// The chart of times shows means, on an axis from zero.
func TestChartOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, debug.Options{})
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "q", MetricsProvider: h})
		pass(q, 10, 97*time.Second)
		_, chart, _ := strings.Cut(get(h, "?queue=q").Body.String(), "<b>Times</b>")
		for _, want := range []string{"<span>1m 40s</span><span>50 s</span><span>0</span>", "at most 1m 37s"} {
			if !strings.Contains(chart, want) {
				t.Errorf("%s is not there:\n%s", want, chart[:2500])
			}
		}
	})
}

// lines returns, for each line of the first chart of a page, the points at which it begins and ends.
func lines(t *testing.T, body string) (xs []float64) {
	t.Helper()
	_, svg, _ := strings.Cut(body, `class="plot"`)
	_, svg, _ = strings.Cut(svg, `class="a area" d="M`)
	path, _, found := strings.Cut(svg, `"`)
	if !found {
		t.Fatalf("no line in\n%s", body)
	}
	for _, p := range strings.Split(path, "L") {
		x, _, _ := strings.Cut(p, ",")
		n, err := strconv.ParseFloat(x, 64)
		if err != nil {
			t.Fatal(err)
		}
		xs = append(xs, n)
	}
	return xs
}

// A chart has the whole width at once, and its axes say what is where.
func TestChartsFillTheirWidth(t *testing.T) {
	withQueue(t, func(t *testing.T, h *debug.Handler, q *workqueue.Typed[int]) {
		for n := range 70 {
			q.Add(n)
		}
		for _, wait := range []time.Duration{0, 3 * time.Second, 14 * time.Second, 2 * time.Minute, time.Hour} {
			time.Sleep(wait)
			xs := lines(t, get(h, "?queue=q").Body.String())
			if xs[0] != 0 || xs[len(xs)-1] != 300 || !slices.IsSorted(xs) {
				t.Errorf("after %v more: %v", wait, xs)
			}
		}
		wantBody(t, get(h, "?queue=q"),
			`<div class="y" aria-hidden="true"><span>80</span><span>40</span><span>0</span></div>`,
			`aria-label="Keys over the last 10m: queued now 70, at most 70;`,
			`<div class="x" aria-hidden="true"><span>10m ago</span><span>5m ago</span><span>now</span></div>`)
	})
	withQueue(t, func(t *testing.T, h *debug.Handler, q *workqueue.Typed[int]) {
		q.Add(1)
		time.Sleep(30 * time.Second) // A chart of rates also has the labels 2, 1 and 0 as long as it has no rate.
		wantBody(t, get(h, "?queue=q"),
			`<div class="y" aria-hidden="true"><span>2</span><span>1</span><span>0</span></div>`)
		wantBody(t, get(h, "?queue=q"), `<span>30 s ago</span><span>15 s ago</span><span>now</span>`)
	})
}

// A tick that was late makes the next one early, and no rate of it.
func TestEarlyTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newClock()
		h := newHandler(t, debug.Options{Clock: clock})
		q := newQueue[int](t, "q", clock)
		debug.Register(h, "", q)
		clock.Step(9990 * time.Millisecond)
		synctest.Wait()
		if d := getJSON[detail](t, h, "?queue=q"); len(d.History.adds()) != 2 {
			t.Errorf("adds %v, want those of the late tick and those since", d.History.adds())
		}
		q.Add(1)
		clock.Step(20 * time.Millisecond)
		synctest.Wait()
		if d := getJSON[detail](t, h, "?queue=q"); len(d.History.adds()) != 2 || slices.Max(d.History.adds()) != 0 {
			t.Errorf("adds %v", d.History.adds())
		}
	})
}

// A queue that takes more than a second for its numbers also has charts, although each list comes before its
// answer.
func TestHistoryOfSlowQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var adds atomic.Uint64
		inspect(h, "q", workqueue.Inspector{Stats: func() workqueue.Stats {
			time.Sleep(1100 * time.Millisecond)
			return workqueue.Stats{Name: "q", Adds: adds.Add(10)}
		}})
		time.Sleep(time.Minute)
		if d := getJSON[detail](t, h, "?queue=q"); len(d.History.adds()) < 10 || d.History.adds()[5] == 0 {
			t.Errorf("%v", d.History.adds())
		}
	})
}

// The keys of a shared queue are those of all processes, and its adds those of this one. So how many are done
// is not known.
func TestDonesOfSharedQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var queued atomic.Int64
		inspect(h, "q", workqueue.Inspector{Stats: func() workqueue.Stats {
			return workqueue.Stats{Name: "q", Adds: 1_000_000, Queued: int(queued.Load()),
				Shared: &leasing.Stats{}}
		}})
		time.Sleep(12 * time.Second)
		queued.Store(1) // by another process
		time.Sleep(12 * time.Second)
		if d := getJSON[detail](t, h, "?queue=q"); d.Queue.Minute.Dones != 0 {
			t.Errorf("%+v", d.Queue.Minute)
		}
	})
}

// When one of two pools ends, the failures of the other are no news. The ended pool goes, no matter what
// name it was shown under.
func TestErrorsOfPoolThatEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var ended atomic.Bool
		for range 2 { // Both show both pools.
			inspect(h, "q", workqueue.Inspector{Stats: func() workqueue.Stats { return workqueue.Stats{Name: "q"} }})
		}
		asked := 0
		for _, failed := range []uint64{40_000, 39_000} {
			h.InspectPool("q", inspectorOf(func(int) worker.Snapshot[any] {
				ends := failed == 40_000 && ended.Load()
				if ends {
					asked++
				}
				return worker.Snapshot[any]{Stats: worker.Stats{Name: "another name", Failed: failed, Ended: ends}}
			}))
		}
		time.Sleep(12 * time.Second)
		ended.Store(true)
		time.Sleep(time.Minute)
		d := getJSON[detail](t, h, "?queue=q")
		for _, q := range getJSON[list](t, h, "").Queues {
			history := getJSON[detail](t, h, "?queue="+queryEscape(q.ID)).History
			if slices.ContainsFunc(history[1:], func(s sample) bool { return s.Errors != 0 }) {
				t.Errorf("%s: %+v", q.ID, history)
			}
		}
		if asked > 2 || len(d.Queue.Pools) != 1 {
			t.Errorf("a pool that has ended was asked %d times, and there are %+v", asked, d.Queue.Pools)
		}
	})
}
