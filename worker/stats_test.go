package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func TestStats(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, func(ctx context.Context, key string) error {
			if worker.CallOf(ctx).Attempt() > 1 {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
			return acts(ctx, key)
		}, options{Name: "pool", Workers: 3, HandlerTimeout: 10 * time.Second, StuckAfter: 10 * time.Second})
		check := func(when string, want worker.Stats) {
			t.Helper()
			got := p.Stats()
			n := uint64(0)
			for _, count := range got.Durations.Counts {
				n += count
			}
			if n != got.Handled || len(got.Durations.Counts) != len(got.Durations.Bounds)+1 {
				t.Errorf("%s: %d durations of %d calls", when, n, got.Handled)
			}
			got.Durations, got.RetryDelays, want.Name = nil, nil, "pool"
			got.LongestRunning, got.UnfinishedWork = 0, 0 // TestStatsOfRunningCalls looks at them.
			if got != want {
				t.Errorf("%s:\n got %+v\nwant %+v", when, got, want)
			}
		}
		check("before Run", worker.Stats{Wanted: 3})
		addAll(q, "fine fails panics exits later drops waits 40s")
		r := run(t, p)
		check("at once", worker.Stats{Wanted: 3, Living: 3, Busy: 3})
		r.after(30 * time.Millisecond)
		check("soon", worker.Stats{Wanted: 3, Living: 3, Busy: 3, Handled: 3, Failed: 2, Panicked: 1, Failing: 2})
		r.after(900 * time.Millisecond)
		want := worker.Stats{
			Wanted: 3, Living: 3, Busy: 2, Handled: 6, Failed: 4, Panicked: 1, Requeued: 1, RequeuedAfter: 1,
			GivenUp: 1, GivenUpKeys: 1, Failing: 3,
		}
		check("then", want)
		r.after(25 * time.Second)
		want.Busy, want.Stuck, want.Handled, want.TimedOut, want.Failing = 1, 1, 10, 1, 0
		check("later", want)
		h := p.Stats().Durations
		if sum := 6*0.02 + 10; h.Sum < sum-1e-6 || h.Sum > sum+1e-6 ||
			h.Counts[slices.Index(h.Bounds, 0.025)] != 6 ||
			h.Counts[slices.Index(h.Bounds, 10)] != 1 {
			t.Errorf("durations: %+v", h)
		}
		setWorkers(t, p, 0)
		synctest.Wait()
		want.Wanted, want.Living = 0, 1
		check("paused", want)
		setWorkers(t, p, 2)
		p.Stop(worker.Nothing)
		r.after(27 * time.Second)
		r.returnedLeaving("1 still running: 40s")
		check("given up", want)
		r.after(time.Minute)
		want.Living, want.Busy, want.Stuck, want.Handled, want.TimedOut, want.Ended = 0, 0, 0, 11, 2, true
		check("ended", want)
	})
}

// Plus adds up every field but a few, also a field that is added to Stats later.
func TestStatsPlus(t *testing.T) {
	filled := func(n int) (s worker.Stats) {
		v := reflect.ValueOf(&s).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Int:
				f.SetInt(int64(n * (i + 1)))
			case reflect.Uint64:
				f.SetUint(uint64(n * (i + 1)))
			}
		}
		s.Name, s.Ended = fmt.Sprint("pool ", n), true
		s.Durations = &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{uint64(n), 0}, Sum: float64(n)}
		s.Changes = &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{0, uint64(n)}, Sum: float64(5 * n)}
		s.RetryDelays, s.HoldDurations = s.Durations, s.Changes
		s.OldestUnanswered, s.BusiestShare = time.Duration(n), float64(n)/10
		return s
	}
	a, b := filled(1), filled(2)
	want := filled(3)
	want.Failing = b.Failing // Pools of one queue have the same failing keys.
	want.Name, want.OldestUnanswered, want.BusiestShare = "pool 1", b.OldestUnanswered, b.BusiestShare
	if got := a.Plus(b); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !reflect.DeepEqual(a, filled(1)) || !reflect.DeepEqual(b, filled(2)) {
		t.Error("Plus has changed what it added up")
	}
	b.Ended = false
	for _, got := range []worker.Stats{b.Plus(worker.Stats{}), worker.Stats{}.Plus(b)} {
		if !reflect.DeepEqual(got, b) {
			t.Errorf("with the zero Stats: got %+v, want %+v", got, b)
		}
	}
	if a.Plus(b).Ended {
		t.Error("ended, although one of the pools has not")
	}
}

func TestRunningKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		p := worker.New(q, func(ctx context.Context, key string) error {
			if worker.CallOf(ctx).Attempt() == 1 && key == "a" {
				return errBroken
			}
			time.Sleep(10 * time.Second)
			return nil
		}, options{Workers: 2, StuckAfter: 5 * time.Second})
		addAll(q, "a b")
		r := run(t, p)
		r.after(6 * time.Second)
		got := p.Snapshot(10).Running
		got[1].Stuck = false // At this very moment.
		got[0].Stack, got[1].Stack = "", ""
		equal(t, "running", got,
			worker.RunningKey[string]{Key: "b", Attempt: 1, Started: start, Duration: 6 * time.Second, Stuck: true},
			worker.RunningKey[string]{Key: "a", Attempt: 2, Started: start.Add(time.Second),
				Duration: 5 * time.Second})
		if len(p.Snapshot(1).Running) != 1 || len(p.Snapshot(-1).Running) != 0 {
			t.Error("the limit is ignored")
		}
		r.after(time.Minute)
		r.endCleanly()
	})
}

func TestSnapshotAsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		p := worker.New(q, acts, options{Workers: 3})
		empty, err := json.Marshal(p.Snapshot(10))
		if err != nil || !strings.Contains(string(empty), `"running":[],"on_hold":[],"failing":[],"given_up":[]`) {
			t.Errorf("%s %v", empty, err)
		}
		addAll(q, "drops fails 1m")
		r := run(t, p)
		r.after(500 * time.Millisecond)
		text, err := json.Marshal(p.Snapshot(10))
		if err != nil {
			t.Fatal(err)
		}
		var back worker.Snapshot[string]
		if err := json.Unmarshal(text, &back); err != nil || back.Stats.Busy != 1 || back.Running[0].Key != "1m" ||
			back.Failing[0].NextTry.IsZero() || back.GivenUp[0].Err != "drops is broken" {
			t.Errorf("%s", text)
		}
		if strings.Count(string(text), "next_try") != 1 {
			t.Errorf("%s", text)
		}
		r.after(2 * time.Minute)
		r.end()
	})
}

// clockThat calls a function after its next reading.
type clockThat struct {
	clock.Clock
	afterNow *func()
}

func (c clockThat) Now() time.Time {
	now := c.Clock.Now()
	if f := *c.afterNow; f != nil {
		*c.afterNow = nil
		f()
	}
	return now
}

// A call that begins while Snapshot reads the clock has run for no less than nothing.
func TestSnapshotHasNoNegativeDuration(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var afterNow func()
		p := worker.New(q, takes(time.Minute), options{Clock: clockThat{clock.RealClock{}, &afterNow}})
		r := run(t, p)
		afterNow = func() {
			time.Sleep(time.Second)
			q.Add("a")
			synctest.Wait()
		}
		for _, k := range p.Snapshot(10).Running {
			if k.Duration < 0 {
				t.Errorf("a call has run for %v", k.Duration)
			}
		}
		r.after(2 * time.Minute)
		r.endCleanly()
	})
}

// provider discovers pools.
type provider struct {
	workqueue.MetricsProvider
	pools map[string]worker.Inspector
}

func (p provider) InspectPool(name string, i worker.Inspector) { p.pools[name] = i }

func newProvider() provider { return provider{pools: make(map[string]worker.Inspector)} }

func TestInspectPoolWithAName(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		metrics := newProvider()
		addAll(q, "1m fails drops")
		p := worker.New(q, acts, options{Name: "pool", Workers: 2, MetricsProvider: metrics})
		if len(metrics.pools) != 0 {
			t.Error("New has announced the pool")
		}
		r := run(t, p)
		if s := metrics.pools["pool"].Stats(); s.Name != "pool" || s.Busy != 1 || s.Ended ||
			len(metrics.pools) != 1 {
			t.Errorf("%+v", s)
		}
		r.after(time.Hour)
		p.Forget("fails")
		r.end()
		if s := metrics.pools["pool"].Stats(); !s.Ended {
			t.Errorf("%+v", s)
		}
		unnamed := worker.New(newQueue(), acts, options{MetricsProvider: metrics})
		run(t, unnamed).endCleanly()
		if len(metrics.pools) != 1 {
			t.Error("a pool without a name is watched")
		}
	})
}

// The name of a pool is that of its queue, and its provider the global one, unless Options say otherwise.
// (This is the only test that sets the provider of the process.)
func TestInspectPoolByDefault(t *testing.T) {
	workqueue.SetProvider(statsProvider{globalMetrics})
	metrics := globalMetrics
	clear(metrics.pools)
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "queue"})
		run(t, worker.New(q, fine, options{})).endCleanly()
		if len(metrics.pools) != 1 || metrics.pools["queue"].Stats == nil {
			t.Errorf("watched: %v", metrics.pools)
		}
	})
}

var globalMetrics = newProvider()

// statsProvider is a provider that queues may also ask for metrics.
type statsProvider struct{ provider }

func (statsProvider) HistogramBounds() []float64                       { return nil }
func (statsProvider) WatchQueue(name string, _ func() workqueue.Stats) {}

// A pool knows for how long its calls have been running. Keys on hold run no call.
func TestStatsOfRunningCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q"})
		pool := worker.New(q, func(ctx context.Context, key string) error {
			if key == "held" {
				return holds(ctx, "it is ready", time.Hour, func(func()) {})
			}
			<-ctx.Done()
			return nil
		}, options{Workers: 3, Name: "p"})
		r := run(t, pool)
		q.Add("held")
		q.Add("a")
		r.after(time.Second)
		q.Add("b")
		r.after(3 * time.Second)
		s := pool.Stats()
		if s.LongestRunning != 3*time.Second || s.UnfinishedWork != 5*time.Second || s.OnHold != 1 || s.Busy != 2 {
			t.Errorf("longest %v, unfinished %v, %d held, %d busy", s.LongestRunning, s.UnfinishedWork, s.OnHold, s.Busy)
		}
		if s.Name != "p" || s.Queue != "q" {
			t.Errorf("pool %q of queue %q", s.Name, s.Queue)
		}
		_ = r.end()
	})
}
