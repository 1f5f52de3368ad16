package prom_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// wantSeries fails unless the series of that gauge are these, without their name.
func wantSeries(t *testing.T, g prometheus.Gatherer, name, help string, series ...string) {
	t.Helper()
	want := ""
	if len(series) > 0 {
		want = fmt.Sprintf("# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
	}
	for _, s := range series {
		want += name + s + "\n"
	}
	if err := testutil.GatherAndCompare(g, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

func (b *bench) priorityQueue(name string) *priorityqueue.Queue[string] {
	return priorityqueue.New(priorityqueue.Config[string]{Name: name, MetricsProvider: b.provider,
		Clock: b.clock})
}

func TestPriorities(t *testing.T) {
	const name, help = "workqueue_queued_keys", "Number of keys that need processing, by priority."
	bench := newBench(prom.Options{ConstLabels: prometheus.Labels{"zone": "z"}})
	bench.queue("fifo").Add("a")
	wantSeries(t, bench, name, help)

	a, b := bench.priorityQueue("q"), bench.priorityQueue("q")
	a.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, "x", "y", "z")
	b.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, "x")
	b.AddWithOpts(priorityqueue.AddOpts{Priority: -1}, "y")
	a.Get()
	wantSeries(t, bench, name, help, `{name="q",priority="-1",zone="z"} 1`,
		`{name="q",priority="5",zone="z"} 3`, `{name="q",priority="other",zone="z"} 0`)

	// Priorities beyond the limit of one queue, or beyond that of the sum, count as other.
	for i := range 30 {
		a.AddWithOpts(priorityqueue.AddOpts{Priority: 100 + i}, fmt.Sprint(i))
		b.AddWithOpts(priorityqueue.AddOpts{Priority: 200 + i}, fmt.Sprint(i))
	}
	lint(t, bench)
	families, err := bench.Gather()
	if err != nil {
		t.Fatal(err)
	}
	lines, keys := 0, 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				lines++
				keys += m.GetGauge().GetValue()
			}
		}
	}
	if lines != 26 || keys != 4+60 {
		t.Errorf("%d values with %v keys", lines, keys)
	}
	for _, q := range []*priorityqueue.Queue[string]{a, b} {
		q.ShutDown()
		for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
			q.Done(key)
		}
		for _, key := range []string{"x", "y", "z"} {
			q.Done(key)
		}
	}
	wantSeries(t, bench, name, help)
}

// In the style of controller-runtime the depth is divided by priority, and those beyond the limit have one
// value. Queues without priorities have the empty one, also beside a queue of the same name that has them.
func TestDepthByPriority(t *testing.T) {
	const name, help = "workqueue_depth", "Current depth of workqueue by workqueue and priority"
	b := newBench(prom.Options{ControllerRuntime: true})
	series := func(priority string, n int) string {
		return fmt.Sprintf(`{controller="q",name="q",priority=%q} %d`, priority, n)
	}
	plain := b.queue("q")
	defer plain.ShutDown()
	plain.Add("x")
	plain.Add("y")
	plain.Get()
	plain.Add("x")
	wantSeries(t, b, name, help, series("", 2))

	q := b.priorityQueue("q")
	defer q.ShutDown()
	want := []string{series("", 2)}
	add := func(priority int) {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: priority}, fmt.Sprint(priority))
	}
	for i := range 24 {
		add(i)
		want = append(want, series(fmt.Sprint(i), 1))
	}
	wantSeries(t, b, name, help, want...)
	for i := 24; i < 27; i++ {
		add(i)
	}
	wantSeries(t, b, name, help, append(want, series("24", 1), series("exceeded_cardinality_limit", 2))...)
}

func TestBlockedAndPaused(t *testing.T) {
	b := newBench(prom.Options{})
	defer b.queue("fifo").ShutDown()
	b.provider.WatchQueue("q", func() workqueue.Stats {
		return workqueue.Stats{Queued: 3, Blocked: 2, Paused: true, ByPriority: &workqueue.PriorityDepths{}}
	})
	wantSeries(t, b, "workqueue_blocked_keys",
		"Number of queued keys that a limit, or a pause of their group, holds back.", `{name="q"} 2`)
	wantSeries(t, b, "workqueue_paused", "Whether the queue is paused: 1 or 0.", `{name="q"} 1`)
}

// The numbers of a shared queue are exported for such a queue, and for no other. When it has ended its gauges
// disappear.
func TestSharedQueue(t *testing.T) {
	bench := newBench(prom.Options{Buckets: []float64{1}})
	down := false
	bench.queue("memory")
	bench.provider.WatchQueue("q", func() workqueue.Stats {
		return workqueue.Stats{ShuttingDown: down, Blocked: 4, Paused: true, Failing: 5, Shared: &leasing.Stats{
			Outage: true, Unsent: 1, Errors: 2, LostLeases: 3, LostDones: 4, GivenUp: 6, Repaired: 8,
			CallDuration: &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{9, 0}, Sum: 2},
		}}
	})
	ofShared := map[string]float64{
		"shared_errors_total": 2, "shared_lost_leases_total": 3, "shared_lost_dones_total": 4,
		"shared_call_duration_seconds": 9, "shared_call_duration_seconds_sum": 2,
	}
	bench.want(t, "a queue in memory", "memory", all(nil))
	live := all(map[string]float64{
		"blocked_keys": 4, "paused": 1, "shared_outage": 1, "shared_unsent_operations": 1,
		"shared_given_up_keys": 6, "shared_repaired_entries": 8,
	})
	maps.Copy(live, ofShared)
	bench.want(t, "a shared queue", "q", live)
	lint(t, bench)
	down = true
	bench.want(t, "an ended queue", "q", grown(ofShared))
}
