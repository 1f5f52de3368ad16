// Package workqueue has as much of the API as the tests need.
package workqueue

import (
	"context"
	"time"
)

type TypedInterface[T comparable] interface {
	Add(item T)
	Len() int
	Get() (item T, shutdown bool)
	Done(item T)
	ShutDown()
	ShuttingDown() bool
}

type TypedDelayingInterface[T comparable] interface {
	TypedInterface[T]
	AddAfter(item T, duration time.Duration)
}

type TypedRateLimitingInterface[T comparable] interface {
	TypedDelayingInterface[T]
	AddRateLimited(item T)
	Forget(item T)
	NumRequeues(item T) int
}

type RateLimitingInterface TypedRateLimitingInterface[any]

type TypedRateLimiter[T comparable] interface {
	When(item T) time.Duration
	Forget(item T)
	NumRequeues(item T) int
}

type TypedBucketRateLimiter[T comparable] struct{}

func (*TypedBucketRateLimiter[T]) When(item T) time.Duration { return 0 }
func (*TypedBucketRateLimiter[T]) Forget(item T)             {}
func (*TypedBucketRateLimiter[T]) NumRequeues(item T) int    { return 0 }

type MetricsProvider interface{ NewDepthMetric(name string) }

type Fact struct{ Name, Value string }

type TypedRateLimitingQueueConfig[T comparable] struct {
	Name            string
	MetricsProvider MetricsProvider
}

type Typed[T comparable] struct{}

func (q *Typed[T]) Add(item T)                   {}
func (q *Typed[T]) Len() int                     { return 0 }
func (q *Typed[T]) Get() (item T, shutdown bool) { return item, true }
func (q *Typed[T]) Done(item T)                  {}
func (q *Typed[T]) ShutDown()                    {}
func (q *Typed[T]) ShuttingDown() bool           { return true }

func NewTyped[T comparable]() *Typed[T] { return nil }

func NewTypedRateLimitingQueue[T comparable](rateLimiter TypedRateLimiter[T]) TypedRateLimitingInterface[T] {
	return nil
}

func NewTypedRateLimitingQueueWithConfig[T comparable](rateLimiter TypedRateLimiter[T], config TypedRateLimitingQueueConfig[T]) TypedRateLimitingInterface[T] {
	return nil
}

func NewRateLimitingQueue(rateLimiter TypedRateLimiter[any]) RateLimitingInterface { return nil }

func NewNamedRateLimitingQueue(rateLimiter TypedRateLimiter[any], name string) RateLimitingInterface {
	return nil
}

func DefaultTypedControllerRateLimiter[T comparable]() TypedRateLimiter[T] { return nil }

func SetProvider(metricsProvider MetricsProvider) {}

type Extended[T comparable] interface {
	TypedInterface[T]
	GetContext(ctx context.Context) (item T, err error)
	DoneAndGet(ctx context.Context, done T) (item T, err error)
}
