package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/prometheus/client_golang/prometheus"
	clientgo "k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// queue is what is measured.
type queue[T comparable] interface {
	Add(T)
	Len() int
	Get() (key T, shutdown bool)
	Done(T)
	ShutDown()
	AddAfter(T, time.Duration)
	AddRateLimited(T)
	Forget(T)
}

// The limits of the exponential limiters, the same for all.
const (
	baseDelay = time.Hour
	maxDelay  = 100 * time.Hour
)

// impl is one of the implementations that are compared.
type impl[T comparable] struct {
	name string
	make func() queue[T]
}

// impls are all of them, each with an exponential limiter and without metrics. (Controller-runtime's queue
// cannot be had without. Those that it is given do nothing.)
func impls[T comparable]() []impl[T] {
	return []impl[T]{
		{"keyedqueue", func() queue[T] {
			return workqueue.NewTypedRateLimitingQueue(
				workqueue.NewTypedItemExponentialFailureRateLimiter[T](baseDelay, maxDelay))
		}},
		{"keyedqueue-priority", func() queue[T] {
			return priorityqueue.New(priorityqueue.Config[T]{
				RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[T](baseDelay, maxDelay),
			})
		}},
		{"client-go", func() queue[T] {
			return clientgo.NewTypedRateLimitingQueue(
				clientgo.NewTypedItemExponentialFailureRateLimiter[T](baseDelay, maxDelay))
		}},
		{"controller-runtime", func() queue[T] {
			return controllerruntime.New("", func(o *controllerruntime.Opts[T]) {
				o.MetricProvider = noMetrics{}
				o.RateLimiter = clientgo.NewTypedItemExponentialFailureRateLimiter[T](baseDelay, maxDelay)
			})
		}},
	}
}

// implsWithMetrics are those that a Prometheus registry scrapes.
func implsWithMetrics[T comparable]() []impl[T] {
	return []impl[T]{
		{"keyedqueue", func() queue[T] {
			return workqueue.NewTypedRateLimitingQueueWithConfig[T](nil, workqueue.TypedRateLimitingQueueConfig[T]{
				Name: "bench", MetricsProvider: prom.NewProvider(prometheus.NewRegistry(), prom.Options{}),
			})
		}},
		{"keyedqueue-priority", func() queue[T] {
			return priorityqueue.New(priorityqueue.Config[T]{
				Name: "bench", MetricsProvider: prom.NewProvider(prometheus.NewRegistry(), prom.Options{}),
			})
		}},
		{"client-go", func() queue[T] {
			return clientgo.NewTypedRateLimitingQueueWithConfig(clientgo.DefaultTypedControllerRateLimiter[T](),
				clientgo.TypedRateLimitingQueueConfig[T]{
					Name: "bench", MetricsProvider: newPushProvider(prometheus.NewRegistry()),
				})
		}},
		{"controller-runtime", func() queue[T] {
			return controllerruntime.New("bench", func(o *controllerruntime.Opts[T]) {
				o.MetricProvider = newPushProvider(prometheus.NewRegistry())
			})
		}},
	}
}

// everyImpl runs f with each implementation, and a queue that is shut down at the end.
func everyImpl[T comparable](b *testing.B, all []impl[T], f func(b *testing.B, q queue[T])) {
	for _, i := range all {
		b.Run("impl="+i.name, func(b *testing.B) {
			q := i.make()
			b.ReportAllocs()
			f(b, q)
			b.StopTimer()
			q.ShutDown()
		})
	}
}

type objectKey struct{ namespace, name string }

func stringKey(i int) string { return fmt.Sprintf("namespace-%d/name-%d", i%100, i) }

func structKey(i int) objectKey {
	return objectKey{fmt.Sprintf("namespace-%d", i%100), fmt.Sprintf("name-%d", i)}
}

func keysOf[T any](n int, key func(i int) T) []T {
	keys := make([]T, n)
	for i := range keys {
		keys[i] = key(i)
	}
	return keys
}

// reportPerKey reports the time for each of the n keys of an iteration, which is what to compare.
func reportPerKey(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
}
