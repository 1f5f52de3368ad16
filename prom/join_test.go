package prom_test

import (
	"fmt"
	"strings"
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
			got := text(t, plain)
			for _, line := range []string{
				`workqueue_depth{name="ours"} 0`, `workqueue_depth{name="theirs"} 0`,
				`x_workqueue_depth{name="ours"} 0`, `x_workqueue_depth{name="theirs"} 0`, `workqueue_waiting_keys{name="ours"} 0`,
			} {
				if !strings.Contains(got, "\n"+line+"\n") {
					t.Errorf("no %s in\n%s", line, got)
				}
			}
		})
	}
	registry := prometheus.NewRegistry()
	p, err := prom.Join(registry, prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "ours", MetricsProvider: p}).ShutDown()
	text(t, registry)
	later := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "[BETA] " + help}, []string{"name"})
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

// countingRegisterer counts how often something was to be registered.
type countingRegisterer struct {
	*prometheus.Registry
	n int
}

func (r *countingRegisterer) Register(c prometheus.Collector) error {
	r.n++
	return r.Registry.Register(c)
}

// A scrape asks the registry once for each metric, however many queues and pools there are. They could otherwise get
// different help within one scrape, which the registry refuses.
func TestJoinAsksOncePerScrape(t *testing.T) {
	registerer := &countingRegisterer{Registry: prometheus.NewRegistry()}
	p, err := prom.Join(registerer, prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	asked := func() int {
		before := registerer.n
		text(t, registerer)
		return registerer.n - before
	}
	one := asked()
	for i := range 10 {
		p.WatchQueue(fmt.Sprint(i), func() workqueue.Stats { return workqueue.Stats{} })
		p.WatchPool(fmt.Sprint(i), func() worker.Stats { return worker.Stats{} })
	}
	if ten := asked(); ten != one {
		t.Errorf("a scrape of ten queues and pools asks %d times, an empty one %d times", ten, one)
	}
}
