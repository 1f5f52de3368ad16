package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// provider watches pools.
type provider struct {
	workqueue.MetricsProvider
	stats     map[string]func() worker.Stats
	snapshots map[string]func(int) worker.Snapshot[any]
}

func (p provider) WatchPool(name string, stats func() worker.Stats) { p.stats[name] = stats }
func (p provider) WatchPoolKeys(name string, snapshot func(int) worker.Snapshot[any]) {
	p.snapshots[name] = snapshot
}

func newProvider() provider {
	return provider{stats: make(map[string]func() worker.Stats), snapshots: make(map[string]func(int) worker.Snapshot[any])}
}

func TestWatchPool(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		metrics := newProvider()
		for _, key := range []string{"runs", "fails", "drops"} {
			q.Add(key)
		}
		handle := func(_ context.Context, key string) error {
			switch key {
			case "fails":
				return errBroken
			case "drops":
				return worker.Terminal(errBroken)
			}
			time.Sleep(time.Minute)
			return nil
		}
		p := worker.New(q, handle, options{Name: "pool", Workers: 2, MetricsProvider: metrics})
		if len(metrics.stats) != 0 {
			t.Error("New has announced the pool")
		}
		r := run(t, p)
		if s := metrics.stats["pool"](); s.Name != "pool" || s.Busy != 1 || s.Ended || len(metrics.stats) != 1 {
			t.Errorf("%+v", s)
		}
		s := metrics.snapshots["pool"](10)
		if len(s.Running) != 1 || s.Running[0].Key != "runs" || len(s.Failing) != 1 || s.Failing[0].Key != "fails" ||
			s.Failing[0].Err != "broken" || len(s.Dropped) != 1 || s.Dropped[0].Key != "drops" {
			t.Errorf("%+v", s)
		}
		r.after(time.Hour)
		p.Forget("fails")
		r.end()
		if s := metrics.stats["pool"](); !s.Ended {
			t.Errorf("%+v", s)
		}
		unnamed := worker.New(newQueue(), handle, options{MetricsProvider: metrics})
		run(t, unnamed).endCleanly()
		if len(metrics.stats) != 1 {
			t.Error("a pool without a name is watched")
		}
	})
}

// The name of a pool is that of its queue, and its provider the global one, unless Options say otherwise. (This
// is the only test that sets the provider of the process.)
func TestWatchPoolByDefault(t *testing.T) {
	workqueue.SetProvider(statsProvider{globalMetrics})
	metrics := globalMetrics
	clear(metrics.stats)
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "queue"})
		run(t, worker.New(q, func(context.Context, string) error { return nil }, options{})).endCleanly()
		if len(metrics.stats) != 1 || metrics.stats["queue"] == nil {
			t.Errorf("watched: %v", metrics.stats)
		}
	})
}

var globalMetrics = newProvider()

// statsProvider is a provider that queues may ask for metrics, too.
type statsProvider struct{ provider }

func (statsProvider) HistogramBounds() []float64                       { return nil }
func (statsProvider) WatchQueue(name string, _ func() workqueue.Stats) {}
