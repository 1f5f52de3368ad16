// Package priorityqueue has as much of controller-runtime's API as the tests need.
package priorityqueue

import "k8s.io/client-go/util/workqueue"

type AddOpts struct {
	RateLimited bool
	Priority    *int
}

type PriorityQueue[T comparable] interface {
	workqueue.TypedRateLimitingInterface[T]
	AddWithOpts(o AddOpts, items ...T)
	GetWithPriority() (item T, priority int, shutdown bool)
}

func New[T comparable](name string) PriorityQueue[T] { return nil }
