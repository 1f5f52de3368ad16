// Package priorityqueue has as much of the API as the tests need.
package priorityqueue

import "context"

type Config[T comparable] struct {
	Name            string
	MetricsProvider any
}

type Queue[T comparable] struct{}

func New[T comparable](config Config[T]) *Queue[T] { return nil }

func (q *Queue[T]) Add(item T)                                                 {}
func (q *Queue[T]) AddRateLimited(item T)                                      {}
func (q *Queue[T]) Forget(item T)                                              {}
func (q *Queue[T]) Get() (item T, shutdown bool)                               { return item, true }
func (q *Queue[T]) GetWithPriority() (item T, priority int, shutdown bool)     { return item, 0, true }
func (q *Queue[T]) GetContext(ctx context.Context) (item T, err error)         { return item, nil }
func (q *Queue[T]) GetBatch(ctx context.Context, limit int) ([]T, error)       { return nil, nil }
func (q *Queue[T]) Done(item T)                                                {}
func (q *Queue[T]) DoneAndGet(ctx context.Context, done T) (item T, err error) { return item, nil }
