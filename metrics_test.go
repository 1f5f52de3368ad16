package workqueue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"k8s.io/utils/clock"
)

func TestOldestQueued(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		c := testkit.NewFakeClock()
		q := build(options[string]{name: "q", provider: &testkit.Recorder{}, clock: c, order: nil})
		if d := q.Stats().OldestQueued; d != 0 {
			t.Errorf("OldestQueued = %v of an empty queue", d)
		}
		q.Add("a")
		c.Step(time.Second)
		q.Add("b")
		c.Step(time.Second)
		first, second := q.Stats().OldestQueued, time.Duration(0)
		hold(t, q, "a")
		second = q.Stats().OldestQueued
		c.Step(-time.Hour)
		if d := q.Stats(); d.OldestQueued != 0 || d.LongestRunning != 0 || d.UnfinishedWork != 0 {
			t.Errorf("Stats() = %+v when the clock was set back", d)
		}
		wantFirst, wantSecond := 2*time.Second, time.Second
		if strings.Contains(t.Name(), "custom") { // With a user's Queue, the next key is unknown.
			wantFirst, wantSecond = 0, 0
		}
		if first != wantFirst || second != wantSecond {
			t.Errorf("OldestQueued = %v, then %v, want %v and %v", first, second, wantFirst, wantSecond)
		}
		q.ShutDown()
	})
}

func TestMetricsTick(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		base := testkit.Goroutines()
		r, c := &testkit.Recorder{}, testkit.NewFakeClock()
		q := build(options[string]{name: "q", provider: r, clock: c})
		base.WantMore(t, "with metrics", 1)
		q.Add("a")
		hold(t, q, "a")
		for _, step := range []struct {
			d    time.Duration
			want float64
		}{
			{499 * time.Millisecond, 0}, {time.Millisecond, 0.5}, {499 * time.Millisecond, 0.5},
			{time.Millisecond, 1}, {2 * time.Second, 3}, {250 * time.Millisecond, 3}, {250 * time.Millisecond, 3.5},
		} {
			c.Step(step.d)
			synctest.Wait()
			r.Want(t, fmt.Sprintf("after %v more", step.d), testkit.Values{"unfinished": step.want,
				"longest": step.want})
		}
		q.ShutDown()
		base.WantMore(t, "after shutdown", 0)
		c.Step(time.Hour)
		q.Done("a")
		r.Want(t, "after shutdown", testkit.Values{"unfinished": 0, "longest": 0, "depth": 0})
	})
}

// A drain must not return while the Done that ends it has yet to set the gauges: a program that waits for the
// drain and then looks at them is to see zeros.
func TestDrainReturnsAfterTheMetrics(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		r := &testkit.Recorder{}
		q := build(options[string]{name: "q", provider: r, clock: testkit.NewFakeClock()})
		q.Add("a")
		hold(t, q, "a")
		drain := startDrain[string](q)
		synctest.Wait()
		slow := make(chan struct{})
		r.On = func(string) { <-slow }
		done := testkit.Start(func() bool { q.Done("a"); return true })
		synctest.Wait()
		early := drain.Returned()
		close(slow)
		done.MustReturn(t, "Done")
		drain.MustReturn(t, "drain")
		if early {
			t.Error("the drain returned before the metrics of the last key were set")
		}
	})
}

// blockingTicker is a clock with tickers whose Stop waits.
type blockingTicker struct {
	clock.WithTicker
	release chan struct{}
}

func (c *blockingTicker) NewTicker(d time.Duration) clock.Ticker {
	return tickerToStop{c.WithTicker.NewTicker(d), c.release}
}

type tickerToStop struct {
	clock.Ticker
	release chan struct{}
}

func (t tickerToStop) Stop() {
	<-t.release
	t.Ticker.Stop()
}

// ShutDown waits for the goroutine that refreshes metrics.
func TestShutDownWaitsForTheTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &blockingTicker{testkit.NewFakeClock(), make(chan struct{})}
		q := options[string]{name: "q", provider: &testkit.Recorder{}, clock: c}.typed()
		down := make(chan struct{})
		go func() { q.ShutDown(); close(down) }()
		synctest.Wait()
		select {
		case <-down:
			t.Error("ShutDown returned before the goroutine has ended")
		default:
		}
		close(c.release)
		<-down
	})
}

// A queue with neither a name nor a provider has no metrics, and does not read the clock.
func TestNoMetrics(t *testing.T) {
	tests := []struct {
		name     string
		queue    string
		provider workqueue.MetricsProvider
	}{
		{"no name", "", &testkit.Recorder{}},
		{"no name, and a reader", "", &reader{}},
		{"no provider", "q", nil},
		{"neither", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				workqueue.WithoutProvider(func() {
					base := testkit.Goroutines()
					q := build(options[string]{name: tt.queue, provider: tt.provider, clock: &testkit.HookedClock{}})
					q.Add("a")
					q.Add("a")
					hold(t, q, "a")
					q.Add("a")
					q.Done("a")
					process(t, q, "a")
					q.Stats()
					base.WantMore(t, "without metrics", 0)
					q.ShutDown()
					wantShutDown(t, q)
					if r, ok := tt.provider.(*testkit.Recorder); ok && len(r.Made()) > 0 {
						t.Errorf("made %q", r.Made())
					}
					if r, ok := tt.provider.(*reader); ok && len(r.stats) > 0 {
						t.Errorf("%d layers are watched", len(r.stats))
					}
				})
			})
		})
	}
}

func TestProviderThatLeavesMetricsOut(t *testing.T) {
	all := []string{"depth", "adds", "latency", "work", "unfinished", "longest", "retries"}
	for _, left := range all {
		t.Run(left, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				r, c := &testkit.Recorder{LeaveOut: left}, testkit.NewFakeClock()
				q := build(options[string]{name: "q", provider: r, clock: c})
				if d, ok := q.(delayer[string]); ok {
					d.AddAfter("a", 0)
				} else {
					q.Add("a")
				}
				hold(t, q, "a")
				c.Step(time.Second)
				synctest.Wait()
				for _, metric := range []string{"unfinished", "longest"} {
					if v := r.Value(metric); metric != left && v != 1 {
						t.Errorf("%s = %v, want 1", metric, v)
					}
				}
				q.Done("a")
				q.ShutDown()
				r.Want(t, "end", testkit.Values{"depth": 0, "unfinished": 0, "longest": 0, left: 0})
			})
		})
	}
}

func TestSetProvider(t *testing.T) {
	workqueue.WithoutProvider(func() {
		first, second, own := &testkit.Recorder{}, &testkit.Recorder{}, &testkit.Recorder{}
		early := workqueue.NewNamed("early")
		workqueue.SetProvider(nil) // ignored, and not the first call
		workqueue.SetProvider(first)
		workqueue.SetProvider(second)
		for _, q := range []workqueue.Interface{
			workqueue.NewNamed("named"), workqueue.New(), early,
			workqueue.NewWithConfig(workqueue.QueueConfig{Name: "own", MetricsProvider: own}),
			workqueue.NewNamedRateLimitingQueue(nil, "limiting"),
		} {
			q.Add(1)
			q.ShutDown()
		}
		if len(first.Made()) != 6+7 || first.Value("adds") != 2 || len(second.Made()) != 0 || len(own.Made()) != 6 {
			t.Errorf("made %q, %q, %q", first.Made(), second.Made(), own.Made())
		}
	})
}

// Histograms with other bounds cannot be added up, whichever is longer.
func TestSumOfHistograms(t *testing.T) {
	few := &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{2, 3}, Sum: 10}
	other := &workqueue.Histogram{Bounds: []float64{5}, Counts: []uint64{1, 1}, Sum: 9}
	many := &workqueue.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{1, 1, 1}, Sum: 6}
	for _, c := range []struct {
		a, b *workqueue.Histogram
		sum  float64
		n    uint64
	}{{few, few, 20, 10}, {few, many, 10, 5}, {many, few, 6, 3}, {few, other, 10, 5}, {nil, few, 10, 5},
		{few, nil, 10, 5}} {
		if got := c.a.Plus(c.b); got.Sum != c.sum || got.Count() != c.n {
			t.Errorf("%+v plus %+v is %+v", c.a, c.b, got)
		}
	}
}

// wantTimes fails unless h has counted those numbers of seconds.
func wantTimes(t *testing.T, what string, h *workqueue.Histogram, seconds ...float64) {
	t.Helper()
	sum, counts := 0.0, make([]uint64, len(h.Counts))
	for _, s := range seconds {
		sum += s
		i, _ := slices.BinarySearch(h.Bounds, s)
		counts[i]++
	}
	if h.Sum != sum || h.Count() != uint64(len(seconds)) || !slices.Equal(h.Counts, counts) {
		t.Errorf("%s: %+v, want those of %v", what, *h, seconds)
	}
}
