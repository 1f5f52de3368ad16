package prom_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// queuedKeys fails unless the values of the metric by priority are these.
func queuedKeys(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	if want != "" {
		want = "# HELP workqueue_queued_keys Number of keys that need processing, by priority.\n" +
			"# TYPE workqueue_queued_keys gauge\n" + want
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "workqueue_queued_keys"); err != nil {
		t.Error(err)
	}
}

func TestPriorities(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p := prom.NewProvider(registry, prom.Options{ConstLabels: prometheus.Labels{"zone": "z"}})
	workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "fifo", MetricsProvider: p}).Add("a")
	queuedKeys(t, registry, "")

	build := func() *priorityqueue.Queue[string] {
		return priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: p})
	}
	a, b := build(), build()
	a.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, "x", "y", "z")
	b.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, "x")
	b.AddWithOpts(priorityqueue.AddOpts{Priority: -1}, "y")
	a.Get()
	queuedKeys(t, registry, `
workqueue_queued_keys{name="q",priority="-1",zone="z"} 1
workqueue_queued_keys{name="q",priority="5",zone="z"} 3
workqueue_queued_keys{name="q",priority="other",zone="z"} 0
`)
	// Priorities beyond the limit of one queue, or beyond that of the sum, count as other.
	for i := range 30 {
		a.AddWithOpts(priorityqueue.AddOpts{Priority: 100 + i}, fmt.Sprint(i))
		b.AddWithOpts(priorityqueue.AddOpts{Priority: 200 + i}, fmt.Sprint(i))
	}
	problems, err := testutil.GatherAndLint(registry)
	if len(problems) > 0 || err != nil {
		t.Errorf("%v, %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	lines, keys := 0, 0.0
	for _, f := range families {
		if f.GetName() == "workqueue_queued_keys" {
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
	queuedKeys(t, registry, "")
}

// A key that is removed is no longer one that needs processing.
func TestDepthAfterRemove(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	q := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: prom.NewProvider(registry, prom.Options{})})
	q.Add("a")
	q.Add("b")
	q.Get()
	q.Add("a")
	q.Remove("b")
	want := "# HELP workqueue_depth Current depth of workqueue\n# TYPE workqueue_depth gauge\nworkqueue_depth{name=\"q\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "workqueue_depth"); err != nil {
		t.Error(err)
	}
}

// In the style of controller-runtime the depth is divided by priority, and those beyond the limit have one value.
func TestDepthByPriority(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	q := priorityqueue.New(priorityqueue.Config[int]{
		Name: "q", MetricsProvider: prom.NewProvider(registry, prom.Options{ControllerRuntime: true}),
	})
	defer q.ShutDown()
	want := `# HELP workqueue_depth Current depth of workqueue by workqueue and priority
# TYPE workqueue_depth gauge
`
	for i := range 24 {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: i}, i)
		want += fmt.Sprintf("workqueue_depth{controller=\"q\",name=\"q\",priority=\"%d\"} 1\n", i)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "workqueue_depth"); err != nil {
		t.Error(err)
	}
	for i := 24; i < 27; i++ {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: i}, i)
	}
	want += `workqueue_depth{controller="q",name="q",priority="24"} 1
workqueue_depth{controller="q",name="q",priority="exceeded_cardinality_limit"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "workqueue_depth"); err != nil {
		t.Error(err)
	}
}

// Under one name there may be a queue with priorities and one without. The latter has the empty priority.
func TestDepthOfBothKinds(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p := prom.NewProvider(registry, prom.Options{ControllerRuntime: true})
	plain := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "q", MetricsProvider: p})
	defer plain.ShutDown()
	q := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: p})
	defer q.ShutDown()
	plain.Add("a")
	plain.Add("b")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 7}, "a", "b", "c")
	want := `# HELP workqueue_depth Current depth of workqueue by workqueue and priority
# TYPE workqueue_depth gauge
workqueue_depth{controller="q",name="q",priority=""} 2
workqueue_depth{controller="q",name="q",priority="7"} 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "workqueue_depth"); err != nil {
		t.Error(err)
	}
}

// The depth of a queue without priorities includes keys that come again when their worker is Done.
func TestDepthWithoutPriorities(t *testing.T) {
	b := newBench(prom.Options{ControllerRuntime: true})
	q := b.queue("q")
	defer q.ShutDown()
	q.Add("a")
	q.Add("b")
	q.Get()
	q.Add("a")
	if depth := b.get(t, "depth", "q").Gauge.GetValue(); depth != 2 {
		t.Errorf("workqueue_depth is %v, want 2", depth)
	}
}

func TestBlockedAndPaused(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p := prom.NewProvider(registry, prom.Options{})
	defer workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "fifo", MetricsProvider: p}).ShutDown()
	p.WatchQueue("q", func() workqueue.Stats {
		return workqueue.Stats{Queued: 3, Blocked: 2, Paused: true, ByPriority: &workqueue.PriorityDepths{}}
	})
	want := `# HELP workqueue_blocked_keys Number of queued keys whose group is at its limit.
# TYPE workqueue_blocked_keys gauge
workqueue_blocked_keys{name="q"} 2
# HELP workqueue_paused Whether the queue is paused: 1 or 0.
# TYPE workqueue_paused gauge
workqueue_paused{name="q"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "workqueue_blocked_keys", "workqueue_paused"); err != nil {
		t.Error(err)
	}
}
