// Package workqueue has as much of the API as the tests need.
package workqueue

type MetricsProvider interface{ NewDepthMetric(name string) }

type Fact struct{ Name, Value string }

func NewNamedRateLimitingQueue(rateLimiter any, name string) any { return nil }

func SetProvider(metricsProvider MetricsProvider) {}

type TypedInterface[T comparable] interface {
	Add(item T)
	Get() (item T, shutdown bool)
}

type Typed[T comparable] struct{}

func (*Typed[T]) Add(item T)                   {}
func (*Typed[T]) Get() (item T, shutdown bool) { return item, true }

type TypedRateLimiter[T comparable] interface{ When(item T) }

func NewTyped[T comparable]() *Typed[T] { return nil }

func NewTypedRateLimitingQueue[T comparable](limiter TypedRateLimiter[T]) TypedInterface[T] {
	return nil
}

func DefaultTypedControllerRateLimiter[T comparable]() TypedRateLimiter[T] { return nil }
