package controllerruntime_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	clientgo "k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
)

// served returns what the manager's /metrics has of the queue with that name, with "NAME" in its place.
// Durations differ from run to run, so the values that depend on them are replaced by "TIME".
func served(t *testing.T, name string) string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "workqueue_") {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&all, f); err != nil {
			t.Fatal(err)
		}
	}
	var header, own strings.Builder
	for line := range strings.Lines(all.String()) {
		if strings.HasPrefix(line, "#") {
			if strings.HasPrefix(line, "# HELP") {
				header.Reset()
			}
			header.WriteString(line)
		} else if strings.Contains(line, fmt.Sprintf("name=%q", name)) {
			own.WriteString(header.String() + duration.ReplaceAllString(line, "$1 TIME\n"))
			header.Reset()
		}
	}
	return strings.ReplaceAll(own.String(), name, "NAME")
}

var duration = regexp.MustCompile(`(?m)^(.*_seconds(?:_sum)?\{.*\}|.*le="(?:[0-9].*)"\}) .*\n`)

// ours are the lines of metrics that controller-runtime does not have.
var ours = regexp.MustCompile(
	`(?m)^(# (HELP|TYPE) )?workqueue_(waiting_keys|blocked_keys|paused|oldest_queued_key_age_seconds|dropped_keys_total|unmatched_dones_total)[ {].*\n`)

var runs int

// A queue that NewQueue makes has the series that controller-runtime's has, in the same registry: after the
// same calls what is served differs in the name, in times, and in six metrics more.
func TestSameSeriesAsTheDefaultQueue(t *testing.T) {
	runs++
	theirName, ourName := fmt.Sprint("theirs-", runs), fmt.Sprint("ours-", runs)
	limiter := func() clientgo.TypedRateLimiter[string] {
		return clientgo.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
	}
	theirs := crpriority.New(theirName, func(o *crpriority.Opts[string]) { o.RateLimiter = limiter() })
	mine := controllerruntime.NewTypedQueue(ourName, limiter()).(crpriority.PriorityQueue[string])
	defer theirs.ShutDown()
	defer mine.ShutDown()

	for _, q := range []crpriority.PriorityQueue[string]{theirs, mine} {
		q.AddWithOpts(crpriority.AddOpts{Priority: ptr(-100)}, "listed", "listed-too")
		q.Add("new")
		q.AddRateLimited("failed")
		for range 2 {
			key, _, _ := q.GetWithPriority()
			if key == "new" {
				q.Done(key)
			}
		}
	}
	want := served(t, theirName)
	if n := strings.Count(want, "# TYPE"); n != 7 {
		t.Fatalf("controller-runtime's queue has %d metrics:\n%s", n, want)
	}
	got := served(t, ourName)
	if n := len(ours.FindAllString(got, -1)); n != 3*6 {
		t.Errorf("%d lines of our own metrics, want 18:\n%s", n, got)
	}
	if got = ours.ReplaceAllString(got, ""); got != want {
		t.Errorf("ours:\n%s\ncontroller-runtime's:\n%s", got, want)
	}
}

// A stock queue with the name of one of ours does not cost the manager its /metrics, which answers 500 if one
// series is there twice. Ours gets another name.
func TestSameNameAsAStockQueue(t *testing.T) {
	runs++
	name := fmt.Sprint("both-", runs)
	limiter := clientgo.DefaultTypedControllerRateLimiter[string]()
	mine := controllerruntime.NewTypedQueue(name, limiter)
	defer mine.ShutDown()
	mine.Add("a")
	served(t, name)
	for _, theirs := range []clientgo.TypedInterface[string]{
		clientgo.NewTypedRateLimitingQueueWithConfig(limiter,
			clientgo.TypedRateLimitingQueueConfig[string]{Name: name}),
		crpriority.New[string](name),
	} {
		defer theirs.ShutDown()
		handler := promhttp.HandlerFor(metrics.Registry,
			promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if response.Code != http.StatusOK {
			t.Fatalf("/metrics answers %d: %.300s", response.Code, response.Body)
		}
		own := name + " (keyedqueue)"
		for _, line := range []string{
			fmt.Sprintf("workqueue_adds_total{controller=%q,name=%q} 0", name, name),
			fmt.Sprintf("workqueue_adds_total{controller=%q,name=%q} 1", own, own),
		} {
			if !strings.Contains(response.Body.String(), "\n"+line+"\n") {
				t.Errorf("/metrics does not have %s", line)
			}
		}
	}
}

// A pool of package worker in a program with a manager has controller-runtime's metrics of controllers.
func TestPoolAmongControllers(t *testing.T) {
	onManager(t, controllerruntime.NewQueue, func(s *scene) {
		s.create(false, "a")
		s.want("a@0s")
		p, err := prom.Join(metrics.Registry, prom.Options{ControllerRuntime: true})
		if err != nil {
			s.t.Fatal(err)
		}
		runs++
		name := fmt.Sprint("pool-", runs)
		queue := workqueue.NewTypedRateLimitingQueue[string](nil)
		queue.Add("a")
		ctx, cancel := context.WithCancel(context.Background())
		if err := worker.Run(ctx, queue, func(context.Context, string) error {
			cancel()
			return nil
		}, worker.Options[string]{Name: name, MetricsProvider: p}); err != nil {
			s.t.Error(err)
		}
		families, err := metrics.Registry.Gather()
		if err != nil {
			s.t.Fatal(err)
		}
		both := 0
		for _, f := range families {
			text := f.String()
			if strings.HasPrefix(f.GetName(), "controller_runtime_reconcile") && strings.Contains(text, `"test"`) &&
				strings.Contains(text, name) {
				both++
			}
			for _, m := range f.GetMetric() { // The buckets can be added up.
				if h := m.GetHistogram(); f.GetName() == "controller_runtime_reconcile_time_seconds" &&
					(len(h.GetBucket()) != 40 || h.GetSchema() != 3) {
					s.t.Errorf("%v has %d buckets, schema %d", m.GetLabel(), len(h.GetBucket()), h.GetSchema())
				}
			}
		}
		if both < 4 { // The fifth, of timeouts, came with controller-runtime 0.23.
			s.t.Errorf("controller and pool are together in %d of controller-runtime's metrics, want 5", both)
		}
	})
}

// Changes are measured from the add of a request to the first reconciliation that succeeds. The registry and
// the page have them.
func TestChangesInManager(t *testing.T) {
	p := &page{}
	onWrapped(t, controllerruntime.Options[reconcile.Request]{Page: p},
		func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
			calls := 0
			s.reconcile = func(_ context.Context, name string) (reconcile.Result, error) {
				time.Sleep(time.Second)
				if calls++; name == "fails" && calls < 4 {
					return reconcile.Result{}, errNotYet
				}
				return reconcile.Result{}, nil
			}
			before := changesServed(t)
			s.create(false, "fine")
			time.Sleep(time.Minute)
			s.create(false, "fails") // Its calls end after 1, 3 and 6 s.
			time.Sleep(5500 * time.Millisecond)
			if age := p.pool.Stats().OldestUnanswered; age != 5500*time.Millisecond {
				s.t.Errorf("the oldest change is %v old", age)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if c := p.pool.Stats().Changes; c.Count() != 2 || c.Sum != 7 {
				s.t.Errorf("%+v", c)
			}
			if now := changesServed(t); now.count != before.count+2 || now.sum != before.sum+7 {
				s.t.Errorf("served: %+v, before: %+v", now, before)
			}
		})
}

// The registry also has what else the manager does not measure: the delays of failures, the times on hold,
// and which part of the calls was for one request.
func TestDelaysHoldsAndBusiestInManager(t *testing.T) {
	onWrapped(t, controllerruntime.Options[reconcile.Request]{},
		func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
			calls := 0
			s.reconcile = func(ctx context.Context, name string) (reconcile.Result, error) {
				switch calls++; calls {
				case 1:
					return reconcile.Result{}, errNotYet // It is retried after a second.
				case 2:
					worker.CallOf(ctx).Hold("a minute", time.Minute)
				}
				if calls < 150 {
					return reconcile.Result{RequeueAfter: time.Second}, nil
				}
				return reconcile.Result{}, nil
			}
			delays, holds := pooled(t, "workqueue_pool_retry_delay_seconds"),
				pooled(t, "workqueue_pool_hold_duration_seconds")
			s.create(false, "busy")
			time.Sleep(4 * time.Minute)
			if now := pooled(t, "workqueue_pool_retry_delay_seconds"); now.count != delays.count+1 ||
				now.sum != delays.sum+1 {
				s.t.Errorf("delays served: %+v, before: %+v", now, delays)
			}
			if now := pooled(t, "workqueue_pool_hold_duration_seconds"); now.count != holds.count+1 ||
				now.sum != holds.sum+60 {
				s.t.Errorf("holds served: %+v, before: %+v", now, holds)
			}
			if share := pooled(t, "workqueue_pool_busiest_key_share"); share.value != 1 {
				s.t.Errorf("the one request has %v of the calls", share.value)
			}
		})
}

// series is what the manager's /metrics has of a metric.
type series struct {
	count      uint64
	sum, value float64
}

// pooled returns the series of that metric which is the controller "test"'s, or nothing.
func pooled(t *testing.T, name string) (s series) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && m.Label[0].GetName() == "controller" && m.Label[0].GetValue() == "test" {
				s = series{m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum(), m.Gauge.GetValue()}
			}
		}
	}
	return s
}

// changesServed returns what the manager's /metrics has of the changes of the controller "test". Beside them
// it must have the numbers of requests that the manager does not count itself, and nothing else.
func changesServed(t *testing.T) series {
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	others := []string{
		"workqueue_pool_given_up_keys", "workqueue_pool_keys_on_hold", "workqueue_pool_holds_to_limit_total",
		"workqueue_pool_looping_keys",
		"workqueue_pool_oldest_change_age_seconds",
	}
	mayBe := []string{
		"workqueue_pool_change_duration_seconds", "workqueue_pool_retry_delay_seconds",
		"workqueue_pool_hold_duration_seconds", "workqueue_pool_busiest_key_share",
	}
	found := 0
	for _, f := range families {
		switch name := f.GetName(); {
		case slices.Contains(mayBe, name):
		case slices.Contains(others, name):
			found++
		case strings.HasPrefix(name, "workqueue_pool_"):
			t.Errorf("%s is served, and the manager counts calls itself", f.GetName())
		}
	}
	if found != len(others) {
		t.Errorf("%d of %v are served", found, others)
	}
	return pooled(t, "workqueue_pool_change_duration_seconds")
}

// passingPage passes on what it shows.
type passingPage struct {
	*prom.Provider
	page
}

func (p *passingPage) Metrics() workqueue.StatsProvider { return p.Provider }

func (p *passingPage) InspectPool(name string, i worker.Inspector) {
	p.Provider.InspectPool(name, i)
	p.page.InspectPool(name, i)
}

// The page may pass on what it shows to the provider that has the queue's metrics. The registry then has each
// change once, and no second count of the calls, which the manager counts itself.
func TestMetricsOfAPage(t *testing.T) {
	p, err := prom.Join(metrics.Registry, prom.Options{ControllerRuntime: true})
	if err != nil {
		t.Fatal(err)
	}
	shown := &passingPage{Provider: p}
	onWrapped(t, controllerruntime.Options[reconcile.Request]{Page: shown},
		func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
			before := changesServed(t)
			s.reconcile = func(_ context.Context, name string) (reconcile.Result, error) {
				if name == "fails" {
					return reconcile.Result{}, errNotYet
				}
				return reconcile.Result{}, nil
			}
			s.create(false, "fine", "fails")
			synctest.Wait()
			if now := changesServed(t); now.count != before.count+1 {
				t.Errorf("%d changes are served, want 1 more than %d", now.count, before.count)
			}
			for f := range shown.pool.Keys(worker.KeyFailing) {
				if f.Failing.Err != errNotYet.Error() {
					t.Errorf("the page has %+v", f)
				}
			}
			if n := shown.pool.Stats().Failing; n != 1 {
				t.Errorf("the page counts %d failing keys", n)
			}
		})
}

// otherProvider is a provider of another package.
type otherProvider struct{ *prom.Provider }

// Config.MetricsProvider gets what the registry would have, also if it is not package prom's.
func TestMetricsOfAnotherProvider(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	other := otherProvider{prom.NewProvider(registry, prom.Options{})}
	r := controllerruntime.WrapReconciler(reconcile.TypedFunc[int](func(context.Context,
		int) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	}), nil)
	q := r.With(priorityqueue.Config[int]{MetricsProvider: other})("numbers", nil)
	defer q.ShutDown()
	q.Add(1)
	key, _ := q.Get()
	if _, err := r.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	q.Done(key)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]*dto.Metric)
	for _, f := range families {
		got[f.GetName()] = f.Metric[0]
	}
	if n := got["workqueue_pool_change_duration_seconds"].GetHistogram().GetSampleCount(); n != 1 {
		t.Errorf("%d changes, want 1", n)
	}
	for _, name := range []string{"workqueue_pool_keys_on_hold", "workqueue_pool_looping_keys"} {
		if got[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	if got["workqueue_pool_results_total"] != nil {
		t.Error("the calls are counted, which the manager does itself")
	}
}
