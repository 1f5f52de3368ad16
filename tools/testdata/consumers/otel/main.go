package main

import (
	"context"
	"fmt"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func main() {
	provider, err := otel.NewProvider(otel.Options{})
	if err != nil {
		panic(err)
	}
	reader := metric.NewManualReader(metric.WithProducer(provider))
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	if _, err := provider.Register(meters.Meter("consumer")); err != nil {
		panic(err)
	}
	workqueue.SetProvider(provider)
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "consumer"})
	queue.Add(1)
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		panic(err)
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == "workqueue.adds" {
				fmt.Println("otel")
			}
		}
	}
}
