package prom_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
)

// Other packages are tried for Join in peers/metrics and controllerruntime.
func TestJoin(t *testing.T) {
	const help = "Current depth of workqueue"
	for name, tt := range map[string]struct {
		help   string
		labels []string
		err    string
	}{
		"same":         {help: help, labels: []string{"name"}},
		"other help":   {help: "Depth", labels: []string{"name"}, err: "workqueue_depth"},
		"other labels": {help: help, labels: []string{"name", "zone"}, err: "workqueue_depth"},
	} {
		t.Run(name, func(t *testing.T) {
			plain := prometheus.NewPedanticRegistry()
			for of, registerer := range map[string]prometheus.Registerer{
				"registry": plain, "wrapper": prometheus.WrapRegistererWithPrefix("x_", plain),
			} {
				theirs := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth", Help: tt.help}, tt.labels)
				registerer.MustRegister(theirs)
				theirs.WithLabelValues([]string{"theirs", "z"}[:len(tt.labels)]...)
				p, err := prom.Join(registerer, prom.Options{})
				if tt.err != "" {
					if err == nil || !strings.Contains(err.Error(), tt.err) {
						t.Errorf("%s: Join() = %v, want an error with %q", of, err, tt.err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "ours", MetricsProvider: p})
				defer q.ShutDown()
			}
			if tt.err != "" {
				return
			}
			wantLines(t, text(t, plain),
				`workqueue_depth{name="ours"} 0`, `workqueue_depth{name="theirs"} 0`,
				`x_workqueue_depth{name="ours"} 0`, `x_workqueue_depth{name="theirs"} 0`,
				`workqueue_waiting_keys{name="ours"} 0`)
		})
	}
	registry := prometheus.NewRegistry()
	p, err := prom.Join(registry, prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "ours",
		MetricsProvider: p}).ShutDown()
	text(t, registry)
	later := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "[BETA] " + help},
		[]string{"name"})
	registry.MustRegister(later)
	later.WithLabelValues("theirs")
	if got := text(t, registry); strings.Count(got, "\nworkqueue_depth{") != 2 {
		t.Errorf("not both depths after a registration that is later than Join:\n%s", got)
	}
	if _, err := prom.Join(nil, prom.Options{}); err == nil {
		t.Error("no error from Join without a registerer")
	}
	if _, err := prom.Join(prometheus.NewRegistry(), prom.Options{Namespace: "\xff"}); err == nil {
		t.Error("no error from Join with wrong options")
	}
}

// Two series with the same labels would make a registry refuse to serve anything. A queue or pool of ours
// with the name of another one gets a name of its own, whichever came first. Everything else stays as it is.
func TestJoinWithANameThatOthersHave(t *testing.T) {
	for how, wrap := range map[string]func(prometheus.Registerer) prometheus.Registerer{
		"plain": func(r prometheus.Registerer) prometheus.Registerer { return r },
		"wrapped": func(r prometheus.Registerer) prometheus.Registerer {
			return prometheus.WrapRegistererWithPrefix("x_", r)
		},
	} {
		t.Run(how, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			p, err := prom.Join(wrap(registry), prom.Options{ControllerRuntime: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a", "b"} {
				p.WatchQueue(name, func() workqueue.Stats { return workqueue.Stats{Adds: 7} })
				p.InspectPool(name, worker.Inspector{Stats: func() worker.Stats { return worker.Stats{Failed: 3} }})
			}
			p.NewDepthMetric("pushed").Inc()
			text(t, registry)
			adds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Name: "workqueue_work_duration_seconds",
				Help: "How long in seconds processing an item from workqueue takes.",
			}, []string{"name", "controller"})
			depth := prometheus.NewGaugeVec(prometheus.GaugeOpts{
				Name: "workqueue_depth", Help: "Current depth of workqueue by workqueue and priority",
			}, []string{"name", "controller", "priority"})
			failed := prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "controller_runtime_reconcile_errors_total",
				Help: "Total number of reconciliation errors per controller",
			}, []string{"controller"})
			wrap(registry).MustRegister(adds, depth, failed)
			adds.WithLabelValues("a", "a").Observe(1)
			depth.WithLabelValues("pushed", "pushed", "").Set(2)
			failed.WithLabelValues("b").Inc()
			lines := []string{
				`workqueue_work_duration_seconds_count{controller="a",name="a"} 1`,
				`workqueue_work_duration_seconds_count{controller="a (keyedqueue)",name="a (keyedqueue)"} 0`,
				`workqueue_adds_total{controller="a (keyedqueue)",name="a (keyedqueue)"} 7`,
				`workqueue_adds_total{controller="b",name="b"} 7`,
				`workqueue_depth{controller="pushed",name="pushed",priority=""} 2`,
				`workqueue_depth{controller="pushed (keyedqueue)",name="pushed (keyedqueue)",priority=""} 1`,
				`controller_runtime_reconcile_errors_total{controller="a"} 3`,
				`controller_runtime_reconcile_errors_total{controller="b"} 1`,
				`controller_runtime_reconcile_errors_total{controller="b (keyedqueue)"} 3`,
				`workqueue_pool_failing_keys{controller="b (keyedqueue)",name="b (keyedqueue)"} 0`,
			}
			if how == "wrapped" {
				for i := range lines {
					lines[i] = "x_" + lines[i]
				}
			}
			wantLines(t, text(t, registry), lines...)
		})
	}
}

// Others may have the same metrics with another constant label. No names are taken then, and theirs and ours
// are served.
func TestJoinBesideOtherConstantLabels(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	theirs := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "workqueue_adds_total", Help: "Total number of adds handled by workqueue",
		ConstLabels: prometheus.Labels{"zone": "b"},
	}, []string{"name"})
	registry.MustRegister(theirs)
	theirs.WithLabelValues("q")
	p, err := prom.Join(registry, prom.Options{ConstLabels: prometheus.Labels{"zone": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	p.WatchQueue("q", func() workqueue.Stats { return workqueue.Stats{} })
	for range 2 {
		wantLines(t, text(t, registry), `workqueue_adds_total{name="q",zone="a"} 0`,
			`workqueue_adds_total{name="q",zone="b"} 0`)
	}
}

// A program may join a registry in several places, as one with module controllerruntime does: it gets one
// provider, in which queues with one name add up. Two providers would send each of their metrics twice, and
// the registry would serve nothing.
func TestJoinAgain(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for range 2 {
		for i, opts := range []prom.Options{{}, {Namespace: "own"}, {Namespace: "buckets", Buckets: []float64{}}} {
			for _, registerer := range []prometheus.Registerer{registry,
				prometheus.WrapRegistererWithPrefix("x_", registry)} {
				p, err := prom.Join(registerer, opts)
				if err != nil {
					t.Fatal(err)
				}
				p.WatchQueue("q", func() workqueue.Stats { return workqueue.Stats{Adds: uint64(i + 1)} })
			}
		}
	}
	got := text(t, registry)
	wantLines(t, got, `workqueue_adds_total{name="q"} 2`, `x_workqueue_adds_total{name="q"} 2`,
		`own_workqueue_adds_total{name="q"} 4`, `x_buckets_workqueue_adds_total{name="q"} 6`)
	if strings.Contains(got, "join") {
		t.Errorf("the mark of a registry that was joined is served:\n%s", got)
	}
}

// Several goroutines that join one registry at once get one provider.
func TestJoinAtOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	providers := make(chan *prom.Provider, 10)
	var joining sync.WaitGroup
	for range cap(providers) {
		joining.Go(func() {
			p, err := prom.Join(registry, prom.Options{ConstLabels: prometheus.Labels{"zone": "a"}})
			if err != nil {
				t.Error(err)
			}
			providers <- p
		})
	}
	joining.Wait()
	close(providers)
	first := <-providers
	for p := range providers {
		if p != first {
			t.Error("two providers of one registry")
		}
	}
}

// failingRegisterer refuses what refuse says.
type failingRegisterer struct {
	prometheus.Registerer
	refuse func(prometheus.Collector) bool
}

func (r failingRegisterer) Register(c prometheus.Collector) error {
	if r.refuse(c) {
		return errors.New("refused")
	}
	return r.Registerer.Register(c)
}

// A Join that failed leaves nothing: the next one registers its provider.
func TestJoinAfterAFailure(t *testing.T) {
	registry := prometheus.NewRegistry()
	isProvider := func(c prometheus.Collector) bool {
		_, is := c.(*prom.Provider)
		return is
	}
	isMark := func(c prometheus.Collector) bool {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		return len(descs) == 1 && strings.Contains((<-descs).String(), "workqueue_joined_")
	}
	for _, refuse := range []func(prometheus.Collector) bool{isProvider, isMark} {
		if p, err := prom.Join(failingRegisterer{registry, refuse}, prom.Options{}); p != nil || err == nil {
			t.Errorf("Join() = %v, %v", p, err)
		}
	}
	p, err := prom.Join(registry, prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.WatchQueue("q", func() workqueue.Stats { return workqueue.Stats{Adds: 3} })
	wantLines(t, text(t, registry), `workqueue_adds_total{name="q"} 3`)
}
