// Package workqueue has as much of the API as the tests need.
package workqueue

type MetricsProvider interface{ NewDepthMetric(name string) }

type Fact struct{ Name, Value string }

func NewNamedRateLimitingQueue(rateLimiter any, name string) any { return nil }

func SetProvider(metricsProvider MetricsProvider) {}
