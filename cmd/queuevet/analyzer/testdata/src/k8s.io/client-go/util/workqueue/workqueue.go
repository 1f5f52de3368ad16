// Package workqueue has as much of client-go's API as the tests need.
package workqueue

type MetricsProvider interface{ NewDepthMetric(name string) }

func SetProvider(metricsProvider MetricsProvider) {}
