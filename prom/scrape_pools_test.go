package prom_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
)

// watchPool lets the provider read the numbers of a pool, and calls scrape while the pool runs and after its
// end. That a pool counts so is tested in package worker.
func watchPool(b *bench, scrape func(when string)) {
	times := &workqueue.Histogram{Bounds: []float64{1, 60}, Counts: []uint64{7, 0, 0}}
	changes := &workqueue.Histogram{Bounds: []float64{1, 60}, Counts: []uint64{2, 1, 0}, Sum: 100}
	st := worker.Stats{
		Wanted: 2, Living: 2, Busy: 1, Stuck: 1, Failing: 2, Looping: 1, GivenUpKeys: 1, Durations: times,
		Handled: 7, Failed: 3, Panicked: 1, Requeued: 2, RequeuedAfter: 1, GivenUp: 1, Changes: changes,
		OldestUnanswered: 1500 * time.Millisecond,
	}
	b.provider.InspectPool("q", worker.Inspector{Stats: func() worker.Stats { return st }})
	scrape("while it runs")
	times = &workqueue.Histogram{Bounds: times.Bounds, Counts: []uint64{7, 1, 0}, Sum: 60}
	st = worker.Stats{
		Ended: true, Durations: times, Changes: changes,
		Handled: 8, Failed: 3, Panicked: 1, Requeued: 2, RequeuedAfter: 1, GivenUp: 1, TimedOut: 1,
	}
	scrape("after its end")
}

var poolLine = regexp.MustCompile(`(?m)^((?:workqueue_pool|controller_runtime)_\w*?(?:_count)?\{.*\} .*)\n`)

// poolLines returns the lines of the metrics of pools, except for buckets and sums.
func poolLines(t *testing.T, b *bench) string {
	var lines []string
	for _, line := range poolLine.FindAllString(text(t, b), -1) {
		if !strings.Contains(line, "_bucket{") && !strings.Contains(line, "_sum{") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestPool(t *testing.T) {
	b := newBench(prom.Options{})
	want := map[string]string{
		"while it runs": `workqueue_pool_busy_workers{name="q"} 1
workqueue_pool_change_duration_seconds_count{name="q"} 3
workqueue_pool_errors_total{name="q"} 3
workqueue_pool_failing_keys{name="q"} 2
workqueue_pool_give_ups_total{name="q"} 1
workqueue_pool_given_up_keys{name="q"} 1
workqueue_pool_handle_duration_seconds_count{name="q"} 7
workqueue_pool_holds_to_limit_total{name="q"} 0
workqueue_pool_keys_on_hold{name="q"} 0
workqueue_pool_living_workers{name="q"} 2
workqueue_pool_looping_keys{name="q"} 1
workqueue_pool_oldest_change_age_seconds{name="q"} 1.5
workqueue_pool_panics_total{name="q"} 1
workqueue_pool_results_total{name="q",result="give_up"} 1
workqueue_pool_results_total{name="q",result="interrupt"} 0
workqueue_pool_results_total{name="q",result="requeue"} 2
workqueue_pool_results_total{name="q",result="retry"} 2
workqueue_pool_results_total{name="q",result="success"} 2
workqueue_pool_start_limited{name="q"} 0
workqueue_pool_stuck_workers{name="q"} 1
workqueue_pool_timeouts_total{name="q"} 0
workqueue_pool_wanted_workers{name="q"} 2
`,
		"after its end": `workqueue_pool_change_duration_seconds_count{name="q"} 3
workqueue_pool_errors_total{name="q"} 3
workqueue_pool_give_ups_total{name="q"} 1
workqueue_pool_handle_duration_seconds_count{name="q"} 8
workqueue_pool_holds_to_limit_total{name="q"} 0
workqueue_pool_panics_total{name="q"} 1
workqueue_pool_results_total{name="q",result="give_up"} 1
workqueue_pool_results_total{name="q",result="interrupt"} 0
workqueue_pool_results_total{name="q",result="requeue"} 2
workqueue_pool_results_total{name="q",result="retry"} 2
workqueue_pool_results_total{name="q",result="success"} 3
workqueue_pool_timeouts_total{name="q"} 1
`,
	}
	watchPool(b, func(when string) {
		if got := poolLines(t, b); got != want[when] {
			t.Errorf("%s:\n%s\nwant\n%s", when, got, want[when])
		}
		lint(t, b)
	})
	h := b.get(t, "pool_handle_duration_seconds", "q").GetHistogram()
	if h.GetSampleSum() != 60 {
		t.Errorf("the handlers took %v s, want 60", h.GetSampleSum())
	}
	wantBuckets(t, h, 60, 7, 8)
	h = b.get(t, "pool_change_duration_seconds", "q").GetHistogram()
	if h.GetSampleSum() != 100 {
		t.Errorf("the changes took %v s, want 100", h.GetSampleSum())
	}
	wantBuckets(t, h, 60, 2, 3)
}

// Of a program that counts its calls in another way there are the changes and the numbers of keys alone, and
// no changes of a pool that does not know them.
func TestCountsNoCalls(t *testing.T) {
	b := newBench(prom.Options{})
	changes := &workqueue.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{4, 1, 0}, Sum: 3}
	b.provider.InspectPool("q",
		worker.Inspector{Stats: func() worker.Stats { return worker.Stats{Changes: changes} }})
	const want = `workqueue_pool_change_duration_seconds_count{name="q"} 5
workqueue_pool_given_up_keys{name="q"} 0
workqueue_pool_holds_to_limit_total{name="q"} 0
workqueue_pool_keys_on_hold{name="q"} 0
workqueue_pool_looping_keys{name="q"} 0
workqueue_pool_oldest_change_age_seconds{name="q"} 0
`
	if got := poolLines(t, b); got != want {
		t.Errorf("%s", got)
	}
	b = newBench(prom.Options{})
	b.provider.InspectPool("q",
		worker.Inspector{Stats: func() worker.Stats { return worker.Stats{Durations: changes} }})
	if got := poolLines(t, b); strings.Contains(got, "change") || !strings.Contains(got, "handle_duration") {
		t.Errorf("%s", got)
	}
}

// Sources of one name may count by other buckets: a controller whose page is over this provider counts by
// those of its own. They cannot be added up, so the first one counts, and each histogram has the buckets of
// its source.
func TestPoolsWithOtherBuckets(t *testing.T) {
	b := newBench(prom.Options{})
	few := &workqueue.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{4, 1, 0}, Sum: 3}
	more := &workqueue.Histogram{Bounds: []float64{1, 2, 60}, Counts: []uint64{1, 1, 1, 0}, Sum: 60}
	for _, st := range []worker.Stats{{Changes: few}, {Changes: more, Durations: more}, {Durations: few}} {
		b.provider.InspectPool("q", worker.Inspector{Stats: func() worker.Stats { return st }})
	}
	for family, want := range map[string]*workqueue.Histogram{"pool_change_duration_seconds": few,
		"pool_handle_duration_seconds": more} {
		if h := b.get(t, family, "q").GetHistogram(); h.GetSampleCount() != want.Count() ||
			len(h.Bucket) != len(want.Bounds) || h.GetSampleSum() != want.Sum {
			t.Errorf("%s: %v, want %+v", family, h, want)
		}
	}
}

func TestPoolUnderControllerRuntimesNames(t *testing.T) {
	b := newBench(prom.Options{ControllerRuntime: true})
	watchPool(b, func(when string) {
		if when != "while it runs" {
			return
		}
		const want = `controller_runtime_active_workers{controller="q"} 1
controller_runtime_max_concurrent_reconciles{controller="q"} 2
controller_runtime_reconcile_errors_total{controller="q"} 3
controller_runtime_reconcile_panics_total{controller="q"} 1
controller_runtime_reconcile_time_seconds_count{controller="q"} 7
controller_runtime_reconcile_timeouts_total{controller="q"} 0
controller_runtime_reconcile_total{controller="q",result="error"} 3
controller_runtime_reconcile_total{controller="q",result="requeue"} 1
controller_runtime_reconcile_total{controller="q",result="requeue_after"} 1
controller_runtime_reconcile_total{controller="q",result="success"} 2
controller_runtime_terminal_reconcile_errors_total{controller="q"} 1
workqueue_pool_change_duration_seconds_count{controller="q",name="q"} 3
workqueue_pool_failing_keys{controller="q",name="q"} 2
workqueue_pool_given_up_keys{controller="q",name="q"} 1
workqueue_pool_holds_to_limit_total{controller="q",name="q"} 0
workqueue_pool_keys_on_hold{controller="q",name="q"} 0
workqueue_pool_living_workers{controller="q",name="q"} 2
workqueue_pool_looping_keys{controller="q",name="q"} 1
workqueue_pool_oldest_change_age_seconds{controller="q",name="q"} 1.5
workqueue_pool_start_limited{controller="q",name="q"} 0
workqueue_pool_stuck_workers{controller="q",name="q"} 1
`
		if got := poolLines(t, b); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", when, got, want)
		}
	})
}

// The histograms of a pool have the buckets that the program has chosen or, by default, those of handlers;
// those of controller-runtime's reconcilers under their name.
func TestBucketsOfPools(t *testing.T) {
	for name, c := range map[string]struct {
		opts    prom.Options
		family  string
		classic int
		native  bool
	}{
		"default": {prom.Options{}, "workqueue_pool_handle_duration_seconds", 21, false},
		"chosen": {prom.Options{Buckets: []float64{1, 2}},
			"workqueue_pool_handle_duration_seconds", 2, false},
		"native": {prom.Options{Buckets: []float64{}, NativeHistogramBucketFactor: 1.1},
			"workqueue_pool_handle_duration_seconds", 0, true},
		"controller-runtime": {prom.Options{ControllerRuntime: true},
			"controller_runtime_reconcile_time_seconds", 40, true},
		"controller-runtime by choice": {prom.Options{ControllerRuntime: true, Buckets: []float64{1}},
			"controller_runtime_reconcile_time_seconds", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(c.opts)
			q := workqueue.NewTypedRateLimitingQueueWithConfig(nil,
				workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: b.provider})
			q.Add("a")
			ctx, cancel := context.WithCancel(t.Context())
			handler := func(context.Context, string) error { cancel(); return nil }
			if err := worker.Run(ctx, q, handler, worker.Options[string]{Name: "q",
				MetricsProvider: b.provider}); err != nil {
				t.Fatal(err)
			}
			families, err := b.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{c.family, "workqueue_pool_change_duration_seconds"} {
				i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
				h := families[i].Metric[0].Histogram
				if len(h.Bucket) != c.classic || (h.Schema != nil) != c.native || h.GetSampleCount() != 1 {
					t.Errorf("%s: %d classic buckets, native %t, %d times", name, len(h.Bucket), h.Schema != nil,
						h.GetSampleCount())
				}
			}
		})
	}
}

// The queue and its pools count keys on hold, the former only while there are some.
func TestKeysOnHold(t *testing.T) {
	b := newBench(prom.Options{})
	st := workqueue.Stats{Processing: 4, OnHold: 3}
	b.provider.WatchQueue("q", func() workqueue.Stats { return st })
	wantLines(t, text(t, b), `workqueue_keys_on_hold{name="q"} 3`)
	st.OnHold = 0
	if strings.Contains(text(t, b), `workqueue_keys_on_hold`) {
		t.Error("workqueue_keys_on_hold without keys on hold")
	}
}

// Queues count by bounds that reach an hour, for those who look at the queue. Kubernetes' buckets stay what
// they are.
func TestFarBounds(t *testing.T) {
	b := newBench(prom.Options{})
	bounds := b.provider.HistogramBounds()
	if last := bounds[len(bounds)-1]; last != 3600 {
		t.Errorf("the last bound is %v", last)
	}
	times := &workqueue.Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1), Sum: 130}
	times.Counts[slices.Index(bounds, 10)], times.Counts[slices.Index(bounds, 300)] = 1, 2
	b.provider.WatchQueue("q", func() workqueue.Stats { return workqueue.Stats{Latency: times} })
	wantLines(t, text(t, b), `workqueue_queue_duration_seconds_bucket{name="q",le="10"} 1`,
		`workqueue_queue_duration_seconds_bucket{name="q",le="+Inf"} 3`,
		`workqueue_queue_duration_seconds_count{name="q"} 3`)
	if strings.Contains(text(t, b), `le="300"`) {
		t.Error("a further bucket is exported")
	}
}
