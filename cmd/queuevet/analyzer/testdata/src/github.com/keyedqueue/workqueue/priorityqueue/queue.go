// Package priorityqueue has as much of the API as the tests need.
package priorityqueue

import "context"

type Config[T comparable] struct {
	Name            string
	MetricsProvider any
}

type Queue[T comparable] struct{}

func New[T comparable](config Config[T]) *Queue[T] { return nil }

func (*Queue[T]) Get() (item T, shutdown bool) { return item, true }

type AddOpts struct{}

func (*Queue[T]) AddWithOpts(o AddOpts, keys ...T) {}

// AddContext stands for the method of redisqueue.
func (*Queue[T]) AddContext(ctx context.Context, item T) error { return nil }
