package otel_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/otel"
)

// A real program has a periodic reader with an exporter, and sets the provider for all queues with
// workqueue.SetProvider.
func Example() {
	provider, err := otel.NewProvider(otel.Options{})
	if err != nil {
		panic(err)
	}
	reader := sdk.NewManualReader(sdk.WithProducer(provider)) // Histograms.
	meters := sdk.NewMeterProvider(sdk.WithReader(reader))
	if _, err := provider.Register(meters.Meter("example")); err != nil { // All others.
		panic(err)
	}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
		Name: "deployments", MetricsProvider: provider,
	})
	defer queue.ShutDown()
	queue.Add("default/web")
	queue.Add("default/db")

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		panic(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[float64]); ok && m.Name == "workqueue.adds" {
				fmt.Println(m.Name, sum.DataPoints[0].Value)
			}
		}
	}
	// Output:
	// workqueue.adds 2
}
