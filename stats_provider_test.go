package workqueue_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

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

// sum is what the layers of the watched queues tell together, without histograms.
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
			t.Errorf("the layers tell %+v together, want %+v", sum, st)
		}
		q.ShutDown()
		if sum := r.sum(); !sum.ShuttingDown || sum.Waiting != 0 || sum.Dropped != q.Stats().Dropped {
			t.Errorf("after shutdown the layers tell %+v together, want %+v", sum, q.Stats())
		}
	})
}

func TestUnnamedQueueIsNotWatched(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		r := &reader{}
		q := build(options[string]{provider: r})
		if q.Add("a"); len(r.stats) != 0 || q.Stats().Latency != nil {
			t.Errorf("%d layers are watched, %+v", len(r.stats), q.Stats())
		}
	})
}

func TestHistogramBounds(t *testing.T) {
	build := func(bounds []float64) *workqueue.Typed[string] {
		return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
			Name: "q", MetricsProvider: &reader{bounds: bounds},
		})
	}
	if bounds := build(nil).Stats().Latency.Bounds; len(bounds) != 12 || bounds[0] != 1e-8 || bounds[11] != 1000 {
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

// A queue that nobody else's code runs in has no deferred unlock on its way; keys that cannot be used must
// not leave it locked.
func TestStatsProviderAndBadKeys(t *testing.T) {
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[any]{Name: "q", MetricsProvider: &reader{}})
	for _, f := range []func(any){q.Add, q.Done} {
		for range 2 {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				f([]int{1})
			}()
		}
		if !workqueue.FreeLock[any](q) {
			t.Error("the lock is held")
		}
		q.Add("a")
	}
}
