package prom_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/prom"
)

// all are the families of a queue that was just made.
func all(different map[string]float64) map[string]float64 {
	m := map[string]float64{
		"depth": 0, "adds_total": 0, "retries_total": 0, "unfinished_work_seconds": 0,
		"longest_running_processor_seconds": 0, "waiting_keys": 0, "oldest_queued_key_age_seconds": 0,
		"dropped_keys_total": 0, "unmatched_dones_total": 0,
		"queue_duration_seconds": 0, "queue_duration_seconds_sum": 0,
		"work_duration_seconds": 0, "work_duration_seconds_sum": 0,
	}
	maps.Copy(m, different)
	return m
}

// grown are the families that stay when a queue ends.
func grown(different map[string]float64) map[string]float64 {
	m := all(different)
	for _, gauge := range []string{
		"depth", "unfinished_work_seconds", "longest_running_processor_seconds", "waiting_keys",
		"oldest_queued_key_age_seconds",
	} {
		delete(m, gauge)
	}
	return m
}

func TestLifeOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(prom.Options{})
		q := b.queue("q")
		b.want(t, "new", "q", all(nil))
		q.Add("a")
		b.clock.Step(time.Second)
		q.Add("b")
		q.Add("b")
		b.clock.Step(time.Second)
		b.want(t, "queued", "q", all(map[string]float64{
			"depth": 2, "adds_total": 2, "oldest_queued_key_age_seconds": 2,
		}))
		q.Get()
		b.clock.Step(time.Second)
		q.Get()
		q.Add("a") // needs processing, but is not queued
		b.clock.Step(time.Second)
		b.want(t, "held", "q", all(map[string]float64{
			"depth": 1, "adds_total": 3, "unfinished_work_seconds": 3, "longest_running_processor_seconds": 2,
			"queue_duration_seconds": 2, "queue_duration_seconds_sum": 4,
		}))
		q.Done("a")
		q.Done("x")
		q.AddAfter("c", time.Minute)
		synctest.Wait()
		b.want(t, "waiting", "q", all(map[string]float64{
			"depth": 1, "adds_total": 3, "unfinished_work_seconds": 1, "longest_running_processor_seconds": 1,
			"queue_duration_seconds": 2, "queue_duration_seconds_sum": 4, "retries_total": 1, "waiting_keys": 1,
			"work_duration_seconds": 1, "work_duration_seconds_sum": 2,
			"unmatched_dones_total": 1, "oldest_queued_key_age_seconds": 1,
		}))
		q.ShutDown()
		q.Done("b")
		b.want(t, "shut down, and a key is left", "q", all(map[string]float64{
			"depth": 1, "adds_total": 3, "oldest_queued_key_age_seconds": 1,
			"queue_duration_seconds": 2, "queue_duration_seconds_sum": 4, "retries_total": 1, "dropped_keys_total": 1,
			"work_duration_seconds": 2, "work_duration_seconds_sum": 3, "unmatched_dones_total": 1,
		}))
		process(t, q, 1)
		for range 3 {
			b.want(t, "ended", "q", grown(map[string]float64{
				"adds_total": 3, "queue_duration_seconds": 3, "queue_duration_seconds_sum": 5, "retries_total": 1,
				"work_duration_seconds": 3, "work_duration_seconds_sum": 3,
				"dropped_keys_total": 1, "unmatched_dones_total": 1,
			}))
		}
	})
}

// The text as a whole: names, types, helps, labels and buckets as Kubernetes has them, and ours.
func TestText(t *testing.T) {
	b := newBench(prom.Options{})
	q := b.queue("q")
	defer q.ShutDown()
	q.Add("a")
	q.Get()
	b.clock.Step(20 * time.Second)
	q.Done("a")
	const want = `# HELP workqueue_adds_total Total number of adds handled by workqueue
# TYPE workqueue_adds_total counter
workqueue_adds_total{name="q"} 1
# HELP workqueue_depth Current depth of workqueue
# TYPE workqueue_depth gauge
workqueue_depth{name="q"} 0
# HELP workqueue_dropped_keys_total Total number of keys that were dropped at shutdown: they waited for their time, or nobody took them.
# TYPE workqueue_dropped_keys_total counter
workqueue_dropped_keys_total{name="q"} 0
# HELP workqueue_longest_running_processor_seconds How many seconds has the longest running processor for workqueue been running.
# TYPE workqueue_longest_running_processor_seconds gauge
workqueue_longest_running_processor_seconds{name="q"} 0
# HELP workqueue_oldest_queued_key_age_seconds How many seconds ago the key was added that is at the head of the line.
# TYPE workqueue_oldest_queued_key_age_seconds gauge
workqueue_oldest_queued_key_age_seconds{name="q"} 0
# HELP workqueue_queue_duration_seconds How long in seconds an item stays in workqueue before being requested.
# TYPE workqueue_queue_duration_seconds histogram
workqueue_queue_duration_seconds_sum{name="q"} 0
workqueue_queue_duration_seconds_count{name="q"} 1
# HELP workqueue_retries_total Total number of retries handled by workqueue
# TYPE workqueue_retries_total counter
workqueue_retries_total{name="q"} 0
# HELP workqueue_unfinished_work_seconds How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.
# TYPE workqueue_unfinished_work_seconds gauge
workqueue_unfinished_work_seconds{name="q"} 0
# HELP workqueue_unmatched_dones_total Total number of calls of Done for a key that no worker held. Each is a bug in the caller.
# TYPE workqueue_unmatched_dones_total counter
workqueue_unmatched_dones_total{name="q"} 0
# HELP workqueue_waiting_keys Number of keys that wait for their time to be queued.
# TYPE workqueue_waiting_keys gauge
workqueue_waiting_keys{name="q"} 0
# HELP workqueue_work_duration_seconds How long in seconds processing an item from workqueue takes.
# TYPE workqueue_work_duration_seconds histogram
workqueue_work_duration_seconds_bucket{name="q",le="1e-08"} 0
workqueue_work_duration_seconds_bucket{name="q",le="1e-07"} 0
workqueue_work_duration_seconds_bucket{name="q",le="1e-06"} 0
workqueue_work_duration_seconds_bucket{name="q",le="9.999999999999999e-06"} 0
workqueue_work_duration_seconds_bucket{name="q",le="9.999999999999999e-05"} 0
workqueue_work_duration_seconds_bucket{name="q",le="0.001"} 0
workqueue_work_duration_seconds_bucket{name="q",le="0.01"} 0
workqueue_work_duration_seconds_bucket{name="q",le="0.1"} 0
workqueue_work_duration_seconds_bucket{name="q",le="1"} 0
workqueue_work_duration_seconds_bucket{name="q",le="10"} 0
workqueue_work_duration_seconds_bucket{name="q",le="+Inf"} 1
workqueue_work_duration_seconds_sum{name="q"} 20
workqueue_work_duration_seconds_count{name="q"} 1
`
	// One histogram's buckets will do.
	got := regexp.MustCompile(`workqueue_queue_duration_seconds_bucket.*\n`).ReplaceAllString(text(t, b), "")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A name may be anything. What is not UTF-8 would make the registry fail.
func TestNames(t *testing.T) {
	b := newBench(prom.Options{})
	for _, name := range []string{"a \"quoted\"\n name", "\xff", "z", "a"} {
		q := b.queue(name)
		q.Add("a")
		defer q.ShutDown()
	}
	var names []string
	for line := range strings.Lines(text(t, b)) {
		if strings.HasPrefix(line, "workqueue_depth{") {
			names = append(names, strings.TrimSpace(line))
		}
	}
	want := []string{
		`workqueue_depth{name="a"} 1`, `workqueue_depth{name="a \"quoted\"\n name"} 1`,
		`workqueue_depth{name="z"} 1`, `workqueue_depth{name="` + "\uFFFD" + `"} 1`,
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", names, want)
	}
	// The registry sorts too. It is much quicker if the metrics come in order.
	metrics := make(chan prometheus.Metric)
	go func() {
		b.provider.Collect(metrics)
		close(metrics)
	}()
	last := ""
	for m := range metrics {
		var out dto.Metric
		if err := m.Write(&out); err != nil {
			t.Error(err)
		}
		if name := out.Label[0].GetValue(); name < last {
			t.Errorf("%q comes after %q", name, last)
		} else {
			last = name
		}
	}
}

// This test is for what grows faster than the number of queues, so its limit suits a slow and busy machine.
func TestTenThousandQueues(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector takes time of its own")
	}
	const n, limit = 10_000, 5 * time.Second
	registry := prometheus.NewRegistry()
	p := prom.NewProvider(registry, prom.Options{})
	for i := range n {
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: fmt.Sprint("queue ", i),
			MetricsProvider: p})
		defer q.ShutDown()
		q.Add("done")
		q.Add("held")
		q.Add("queued")
		q.Get()
		q.Get()
		q.Done("done")
	}
	fastest := time.Duration(math.MaxInt64)
	for range 3 {
		began := time.Now()
		families, err := registry.Gather()
		fastest = min(fastest, time.Since(began))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if len(f.Metric) != n {
				t.Fatalf("%d metrics of %s, want %d", len(f.Metric), f.GetName(), n)
			}
		}
	}
	if fastest > limit {
		t.Errorf("scraping %d queues takes %v", n, fastest)
	}
}
