package bench

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
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

// maker makes queues of these names.
type maker[T comparable] func(name string) queue[T]

// scrapedImpl is an implementation whose queues a Prometheus registry scrapes.
type scrapedImpl[T comparable] struct {
	name string
	in   func(registry *prometheus.Registry) maker[T]
}

func scrapedImpls[T comparable]() []scrapedImpl[T] {
	return []scrapedImpl[T]{
		{"keyedqueue", func(registry *prometheus.Registry) maker[T] {
			provider := prom.NewProvider(registry, prom.Options{})
			return func(name string) queue[T] {
				return workqueue.NewTypedRateLimitingQueueWithConfig[T](nil,
					workqueue.TypedRateLimitingQueueConfig[T]{Name: name, MetricsProvider: provider})
			}
		}},
		{"keyedqueue-priority", func(registry *prometheus.Registry) maker[T] {
			provider := prom.NewProvider(registry, prom.Options{})
			return func(name string) queue[T] {
				return priorityqueue.New(priorityqueue.Config[T]{Name: name, MetricsProvider: provider})
			}
		}},
		{"client-go", func(registry *prometheus.Registry) maker[T] {
			provider := newPushProvider(registry)
			return func(name string) queue[T] {
				return clientgo.NewTypedRateLimitingQueueWithConfig(clientgo.DefaultTypedControllerRateLimiter[T](),
					clientgo.TypedRateLimitingQueueConfig[T]{Name: name, MetricsProvider: provider})
			}
		}},
		{"controller-runtime", func(registry *prometheus.Registry) maker[T] {
			provider := newPushProvider(registry)
			return func(name string) queue[T] {
				return controllerruntime.New(name, func(o *controllerruntime.Opts[T]) { o.MetricProvider = provider })
			}
		}},
	}
}

// implsWithMetrics are the scraped ones, each queue in a registry of its own.
func implsWithMetrics[T comparable]() []impl[T] {
	var all []impl[T]
	for _, i := range scrapedImpls[T]() {
		all = append(all, impl[T]{i.name, func() queue[T] { return i.in(prometheus.NewRegistry())("bench") }})
	}
	return all
}

// everyImpl runs f with each implementation, and a queue that is shut down at the end.
func everyImpl[T comparable](b *testing.B, all []impl[T], f func(b *testing.B, q queue[T])) {
	everyMake(b, all, func(b *testing.B, newQueue func() queue[T]) {
		q := newQueue()
		f(b, q)
		b.StopTimer()
		q.ShutDown()
	})
}

// everyMake runs f with each implementation. f shuts down the queues that it makes, once, because
// controller-runtime's panics at the second time.
func everyMake[T comparable](b *testing.B, all []impl[T], f func(b *testing.B, newQueue func() queue[T])) {
	for _, i := range all {
		b.Run("impl="+i.name, func(b *testing.B) {
			b.ReportAllocs()
			f(b, i.make)
		})
	}
}

// sizes are numbers of keys. With -short those that take seconds are left out.
func sizes(all ...int) []int {
	const short = 100_000
	return slices.DeleteFunc(all, func(n int) bool { return n > short && testing.Short() })
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

// quantile returns the value that this part of the values, which it sorts, is not above.
func quantile(values []time.Duration, part float64) float64 {
	slices.Sort(values)
	return float64(values[int(part*float64(len(values)-1))])
}

// measureWarm measures f, which does something to n keys, in a queue to which it has been done before.
// Once so warm, ours must not allocate. (That a queue notes which memory it keeps for its next burst is less
// than an allocation for fifty keys.)
func measureWarm(b *testing.B, n int, f func()) {
	b.Helper()
	f()
	for b.Loop() {
		f()
	}
	reportPerKey(b, n)
	if !strings.Contains(b.Name(), "/impl=keyedqueue") {
		return
	}
	// The collector would take what is kept.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if a := testing.AllocsPerRun(max(2, 1000/n), f) / float64(n); a > 0.02 {
		b.Errorf("%.2f allocations a key, although the queue is warm", a)
	}
}
