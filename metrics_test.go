package workqueue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
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

// reader is a StatsProvider. It has no metrics, so a queue that makes one panics.
type reader struct {
	workqueue.MetricsProvider
	bounds []float64
	names  []string
	stats  []func() workqueue.Stats
}

func (r *reader) HistogramBounds() []float64 { return r.bounds }

func (r *reader) WatchQueue(name string, stats func() workqueue.Stats) {
	r.names = append(r.names, name)
	r.stats = append(r.stats, stats)
}

// sum adds up the Stats of the layers of the watched queues, without histograms.
func (r *reader) sum() (total workqueue.Stats) {
	total.ShuttingDown = true
	for _, stats := range r.stats {
		st := stats()
		total.Queued += st.Queued
		total.Processing += st.Processing
		total.Waiting += st.Waiting
		total.Adds += st.Adds
		total.Retries += st.Retries
		total.Dropped += st.Dropped
		total.UnmatchedDones += st.UnmatchedDones
		total.OldestQueued += st.OldestQueued
		total.LongestRunning += st.LongestRunning
		total.UnfinishedWork += st.UnfinishedWork
		total.ShuttingDown = total.ShuttingDown && st.ShuttingDown
	}
	return total
}

func TestStatsProvider(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		base := testkit.Goroutines()
		r, c := &reader{bounds: []float64{0.5, 1.5, 3}}, testkit.NewFakeClock()
		q := build(options[string]{name: "q", provider: r, clock: c})
		base.WantMore(t, "of a queue that is read", 0)
		for i, name := range r.names {
			if name != "q" {
				t.Errorf("layer %d is watched as %q", i, name)
			}
		}
		q.Add("a")
		q.Add("b")
		q.Add("c")
		c.Step(time.Second)
		hold(t, q, "a", "b")
		q.Done("x")
		if d, ok := q.(delayer[string]); ok {
			d.AddAfter("w", time.Hour)
		}
		c.Step(2 * time.Second)
		q.Done("a")

		st := q.Stats()
		if st.LongestRunning != 2*time.Second || st.UnfinishedWork != 2*time.Second {
			t.Errorf("Stats() = %+v", st)
		}
		wantTimes(t, "latency", st.Latency, 1, 1)
		wantTimes(t, "work duration", st.WorkDuration, 2)
		if !slices.Equal(st.Latency.Bounds, r.bounds) {
			t.Errorf("the bounds are %v", st.Latency.Bounds)
		}
		st.Name, st.Latency, st.WorkDuration = "", nil, nil
		if sum := r.sum(); sum != st {
			t.Errorf("the layers have %+v together, want %+v", sum, st)
		}
		q.ShutDown()
		if sum := r.sum(); !sum.ShuttingDown || sum.Waiting != 0 || sum.Dropped != q.Stats().Dropped {
			t.Errorf("after shutdown the layers have %+v together, want %+v", sum, q.Stats())
		}
	})
}

// slowStats is a queue whose Stats calls hooks before and after it reads the queue.
type slowStats struct {
	workqueue.Extended[string]
	before, then func()
}

func (q *slowStats) Stats() workqueue.Stats {
	q.before()
	st := q.Extended.Stats()
	q.then()
	return st
}

// A key that moves from layer to layer while both are read is counted in at least one, even if it moves there
// and back.
func TestStatsOfAMovingKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &slowStats{Extended: workqueue.NewTyped[string]()}
		q := workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Queue: below}).(delayer[string])
		defer q.ShutDown()
		wait := func() {
			below.Get()
			q.AddAfter("a", time.Minute)
			below.Done("a")
		}
		comeDue := func() {
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		nothing := func() {}
		for name, moves := range map[string]struct{ before, meanwhile func() }{
			"comes due":              {wait, comeDue},
			"waits again":            {nothing, wait},
			"waits again, comes due": {nothing, func() { wait(); comeDue() }},
			"comes due, waits again": {wait, func() { comeDue(); wait() }},
		} {
			for _, hook := range []*func(){&below.before, &below.then} {
				q.Add("a")
				below.before, below.then = nothing, nothing
				moves.before()
				*hook = moves.meanwhile
				if st := q.Stats(); st.Queued+st.Processing+st.Waiting == 0 {
					t.Errorf("a key that %s is in no state: %+v", name, st)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				below.before, below.then = nothing, nothing
				if st := q.Stats(); st.Queued != 1 || st.Waiting != 0 {
					t.Errorf("after a key that %s: %+v, want it queued", name, st)
				}
				key, _ := q.Get()
				q.Done(key)
			}
		}
		q.AddAfter("a", time.Minute)
		below.before = func() { q.AddAfter("a", time.Hour) } // It does not begin to wait.
		if st := q.Stats(); st.Waiting != 1 {
			t.Errorf("of a key that waits: %+v", st)
		}
	})
}

// A delaying queue is watched as a whole, or, on top of an existing queue, beside that one.
func TestLayersThatAreWatchedTogether(t *testing.T) {
	for _, ready := range []bool{false, true} {
		r := &reader{}
		config := workqueue.TypedDelayingQueueConfig[string]{Name: "q", MetricsProvider: r}
		if ready {
			config.Queue = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "q",
				MetricsProvider: r})
		}
		q := workqueue.NewTypedDelayingQueueWithConfig(config)
		defer q.ShutDown()
		q.Add("a")
		q.AddAfter("b", time.Hour)
		if want := map[bool]int{false: 1, true: 2}[ready]; len(r.stats) != want {
			t.Errorf("%d stats are watched, want %d", len(r.stats), want)
		}
		if st := r.sum(); st.Queued != 1 || st.Waiting != 1 || st.Retries != 1 {
			t.Errorf("the provider reads %+v", st)
		}
	}
}

// lateQueue calls a function during the next ShuttingDown, after it has looked.
type lateQueue struct {
	*hookedQueue[string]
	meanwhile func()
}

func (q *lateQueue) ShuttingDown() bool {
	down := q.hookedQueue.ShuttingDown()
	if f := q.meanwhile; f != nil {
		q.meanwhile = nil
		f()
	}
	return down
}

// WatchQueue promises that the numbers of an empty queue do not change after shutdown, also if an AddAfter
// has found the queue open before.
func TestAddAfterDuringShutDownIsNotCounted(t *testing.T) {
	for _, d := range []time.Duration{0, time.Hour} {
		r, below := &reader{}, &lateQueue{hookedQueue: newHooked[string]()}
		q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
			Name: "q", MetricsProvider: r, Queue: below,
		})
		below.meanwhile = q.ShutDown
		q.AddAfter("a", d)
		if st := r.sum(); !st.ShuttingDown || st.Retries != 0 {
			t.Errorf("AddAfter of %v: %+v", d, st)
		}
	}
}

func TestHistogramBounds(t *testing.T) {
	build := func(bounds []float64) *workqueue.Typed[string] {
		return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
			Name: "q", MetricsProvider: &reader{bounds: bounds},
		})
	}
	if bounds := build(nil).Stats().Latency.Bounds; len(bounds) != 12 || bounds[0] != 1e-8 ||
		bounds[11] != 1000 {
		t.Errorf("by default the bounds are %v", bounds)
	}
	if bounds := build([]float64{}).Stats().Latency.Bounds; len(bounds) != 0 {
		t.Errorf("without bounds there are %v", bounds)
	}
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "workqueue: StatsProvider: bound 1") {
			t.Errorf("panic %q", s)
		}
	}()
	build([]float64{2, 1})
}

// inspecting is a StatsProvider that notes the queues whose keys it gets to see.
type inspecting struct {
	*reader
	queues  []any
	untyped []workqueue.Extended[any]
}

func (p *inspecting) InspectQueue(_ string, q any, untyped workqueue.Extended[any]) {
	p.queues = append(p.queues, q)
	p.untyped = append(p.untyped, untyped)
}

// A provider gets to see the outermost layer of each queue with a name, once, and that layer works.
func TestQueueInspector(t *testing.T) {
	p := &inspecting{reader: &reader{}}
	fifo := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "fifo", MetricsProvider: p})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
		Name: "delaying", MetricsProvider: p, Queue: fifo,
	})
	limiting := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "limiting", MetricsProvider: p})
	defer delaying.ShutDown()
	defer limiting.ShutDown()
	workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{MetricsProvider: p}) // without a name
	if !slices.Equal(p.queues, []any{fifo, delaying, limiting}) {
		t.Fatalf("the provider saw %T", p.queues)
	}
	if p.untyped[0].Below() != nil || p.untyped[1].Below() != any(fifo) || p.untyped[2].Below() != nil {
		t.Error("a layer that the program has put below is wrong")
	}
	q := p.untyped[2]
	q.Add("added")
	extended := limiting.(workqueue.ExtendedRateLimiting[string])
	if _, err := extended.Fail(t.Context(), "failed", workqueue.Failure{}); err != nil {
		t.Error(err)
	}
	s := q.Snapshot(10)
	if len(s.Queued) != 1 || s.Queued[0].Key != any("added") || len(s.Waiting) != 1 || len(s.Failing) != 1 ||
		s.Failing[0].Key != any("failed") || s.Failing[0].Requeues != 1 || s.Failing[0].Due.IsZero() ||
		q.Stats().Queued != 1 {
		t.Errorf("%+v", s)
	}
	defer func() {
		if recover() == nil {
			t.Error("a key of another type was added")
		}
	}()
	q.Add(1)
}

// Nil is a key of a queue of any, and of no other type.
func TestUntypedNilKey(t *testing.T) {
	q := workqueue.NewTyped[any]()
	i := workqueue.Untyped(q)
	i.Add(nil)
	if k, found := i.SnapshotKey(nil); !found || k.State != workqueue.KeyQueued {
		t.Errorf("SnapshotKey(nil) = %+v, %v", k, found)
	}
	process[any](t, q, nil)
	other := workqueue.Untyped(workqueue.NewTyped[*int]())
	testkit.WantPanic(t, "Add of a nil that is no *int", func() { other.Add(nil) })
}

// A queue of several layers asks for the global provider once: all of it is watched, or nothing.
func TestGlobalProviderIsReadOnce(t *testing.T) {
	workqueue.WithoutProvider(func() {
		build := []func(){
			func() { workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "q"}) },
			func() {
				workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Name: "q"})
			},
			func() {
				workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[int]{Name: "q"})
			},
		}
		for layer, build := range build {
			var late reader
			first := &swappingReader{swap: func() { setGlobalProvider(&late) }}
			setGlobalProvider(first)
			build()
			if n := len(first.stats); n != 1 || len(late.stats) != 0 {
				t.Errorf("layer %d: %d parts are watched by the first provider, %d by a later one", layer+1, n,
					len(late.stats))
			}
		}
	})
}

func setGlobalProvider(p workqueue.MetricsProvider) {
	boxed := any(p)
	observe.Global.Store(&boxed)
}

// swappingReader sets another global provider as soon as it is used.
type swappingReader struct {
	reader
	swap func()
}

func (r *swappingReader) HistogramBounds() []float64 {
	r.swap()
	return nil
}
