// Package workqueue has as much of client-go's API as the tests need.
package workqueue

type MetricsProvider interface{ NewDepthMetric(name string) }

func SetProvider(metricsProvider MetricsProvider) {}

type TypedInterface[T comparable] interface {
	Add(item T)
	Get() (item T, shutdown bool)
}

type Interface TypedInterface[any]

func New() Interface { return nil }
