package prom_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
)

// runPool runs a pool of two workers with the results that its keys are named after, and calls scrape while one of
// its handlers is stuck, and then after its end.
func runPool(t *testing.T, b *bench, scrape func(when string)) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: b.provider})
		keys := []string{"stuck", "success", "requeue", "later", "error", "panic", "drop"}
		for _, key := range keys {
			q.Add(key)
		}
		requeued := false
		handler := func(_ context.Context, key string) error {
			switch key {
			case "requeue":
				if requeued {
					return nil
				}
				requeued = true
				return worker.Requeue{}
			case "later":
				return worker.RequeueAfter(time.Hour)
			case "error":
				return errors.New("not yet")
			case "panic":
				panic("handler")
			case "drop":
				return worker.Terminal(errors.New("never"))
			case "stuck":
				time.Sleep(time.Minute)
			}
			return nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			ended <- worker.Run(ctx, q, handler, worker.Options[string]{
				Workers: 2, HandlerTimeout: time.Second, StuckAfter: time.Second, MetricsProvider: b.provider,
				DrainTimeout: time.Hour,
			})
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		scrape("while it runs")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		scrape("after its end")
	})
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
workqueue_pool_dropped_keys_total{name="q"} 1
workqueue_pool_errors_total{name="q"} 3
workqueue_pool_failing_keys{name="q"} 2
workqueue_pool_handle_duration_seconds_count{name="q"} 7
workqueue_pool_living_workers{name="q"} 2
workqueue_pool_panics_total{name="q"} 1
workqueue_pool_results_total{name="q",result="drop"} 1
workqueue_pool_results_total{name="q",result="requeue"} 2
workqueue_pool_results_total{name="q",result="retry"} 2
workqueue_pool_results_total{name="q",result="success"} 2
workqueue_pool_stuck_workers{name="q"} 1
workqueue_pool_timeouts_total{name="q"} 0
workqueue_pool_wanted_workers{name="q"} 2
`,
		"after its end": `workqueue_pool_dropped_keys_total{name="q"} 1
workqueue_pool_errors_total{name="q"} 3
workqueue_pool_handle_duration_seconds_count{name="q"} 8
workqueue_pool_panics_total{name="q"} 1
workqueue_pool_results_total{name="q",result="drop"} 1
workqueue_pool_results_total{name="q",result="requeue"} 2
workqueue_pool_results_total{name="q",result="retry"} 2
workqueue_pool_results_total{name="q",result="success"} 3
workqueue_pool_timeouts_total{name="q"} 1
`,
	}
	runPool(t, b, func(when string) {
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
}

func TestPoolUnderControllerRuntimesNames(t *testing.T) {
	b := newBench(prom.Options{ControllerRuntime: true})
	runPool(t, b, func(when string) {
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
workqueue_pool_failing_keys{controller="q",name="q"} 2
workqueue_pool_living_workers{controller="q",name="q"} 2
workqueue_pool_stuck_workers{controller="q",name="q"} 1
`
		if got := poolLines(t, b); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", when, got, want)
		}
	})
}
