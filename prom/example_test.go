package prom_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// In main, before the first queue is made. The program serves /metrics as always, with promhttp.Handler.
func Example() {
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	workqueue.SetProvider(prom.NewProvider(registry, prom.Options{}))

	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "deployments"})
	defer queue.ShutDown()
	queue.Add("default/web")
	queue.Add("default/db")
	queue.Get()

	print(registry, "workqueue_adds_total", "workqueue_depth")
	// Output:
	// workqueue_adds_total{name="deployments"} 2
	// workqueue_depth{name="deployments"} 1
}

// In main of a program whose libraries have client-go's queues with metrics: both kinds are in one registry
// then, with the same metrics.
func ExampleJoin() {
	registry := prometheus.NewRegistry() // In such a program: legacyregistry.Registerer().
	depth := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "workqueue_depth", Help: "[BETA] Current depth of workqueue",
	}, []string{"name"})
	registry.MustRegister(depth) // What the libraries do.
	depth.WithLabelValues("pods").Set(3)

	provider, err := prom.Join(registry, prom.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "deployments",
		MetricsProvider: provider})
	defer queue.ShutDown()
	queue.Add("default/web")

	print(registry, "workqueue_depth")
	// Output:
	// workqueue_depth{name="deployments"} 1
	// workqueue_depth{name="pods"} 3
}

// Other labels, a provider for one queue only, and native histograms without classic buckets.
func ExampleOptions() {
	registry := prometheus.NewRegistry()
	provider := prom.NewProvider(registry, prom.Options{
		Namespace:                   "example",
		ConstLabels:                 prometheus.Labels{"zone": "a"},
		Buckets:                     []float64{},
		NativeHistogramBucketFactor: 1.1,
	})
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
		Name: "deployments", MetricsProvider: provider,
	})
	defer queue.ShutDown()
	queue.Add("default/web")

	print(registry, "example_workqueue_depth")
	// Output:
	// example_workqueue_depth{name="deployments",zone="a"} 1
}

// Interfaces as some other package has them.
type (
	theirGauge interface {
		Inc()
		Dec()
	}
	theirCounter   interface{ Inc() }
	theirHistogram interface{ Observe(float64) }
	theirSettable  interface{ Set(float64) }
)

// A package whose MetricsProvider returns interfaces of its own, like client-go's.
func ExampleFor() {
	registry := prometheus.NewRegistry()
	provider := prom.For[theirGauge, theirCounter, theirHistogram, theirSettable](
		prom.NewProvider(registry, prom.Options{}))
	adds := provider.NewAddsMetric("theirs")
	adds.Inc()

	print(registry, "workqueue_adds_total")
	// Output:
	// workqueue_adds_total{name="theirs"} 1
}

// print prints these metrics without their help.
func print(g prometheus.Gatherer, names ...string) {
	families, err := g.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range families {
		for _, name := range names {
			if f.GetName() == name {
				var b strings.Builder
				_, _ = expfmt.MetricFamilyToText(&b, f)
				lines := strings.Split(b.String(), "\n")
				fmt.Fprintln(os.Stdout, strings.Join(lines[2:len(lines)-1], "\n"))
			}
		}
	}
}
