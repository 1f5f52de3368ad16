//lint:file-ignore U1000 The copied tests use what is here.

package crspecs

import (
	"sync"
	"time"

	// The tests that are copied here import these.
	_ "github.com/google/gofuzz"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"

	clientgo "k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// AddOpts is what controller-runtime's tests call it.
type AddOpts = crpriority.AddOpts

// New makes a queue as controller-runtime's New does.
func New[T comparable](name string) crpriority.PriorityQueue[T] {
	return controllerruntime.NewTypedQueue(name,
		clientgo.DefaultTypedControllerRateLimiter[T]()).(crpriority.PriorityQueue[T])
}

// queue is ours with the fields of controller-runtime's that its tests use.
type queue struct {
	*controllerruntime.Queue[string]
	metrics *fakeMetricsProvider

	lockedLock  sync.Mutex
	locked      held
	rateLimiter clientgo.TypedRateLimiter[string]
	// tick is not used: our queue has timers.
	tick func(time.Duration) <-chan time.Time
}

// held counts the keys that workers have.
type held struct{ stats func() workqueue.Stats }

func (h held) Len() int { return h.stats().Processing }

// limiter is the limiter that a test has set since the queue was made.
type limiter struct{ of *queue }

func (l limiter) When(key string) time.Duration { return l.of.rateLimiter.When(key) }
func (l limiter) Forget(key string)             { l.of.rateLimiter.Forget(key) }
func (l limiter) NumRequeues(key string) int    { return l.of.rateLimiter.NumRequeues(key) }

// fakeMetricsProvider has the queue's numbers as of the last call, by the queue's name.
type fakeMetricsProvider struct {
	workqueue.MetricsProvider

	mu      sync.Mutex
	depth   map[string]map[int]int
	adds    map[string]int
	retries map[string]int
}

func (*fakeMetricsProvider) HistogramBounds() []float64                { return nil }
func (*fakeMetricsProvider) WatchQueue(string, func() workqueue.Stats) {}

func newQueue() (*queue, *fakeMetricsProvider) {
	q := &queue{rateLimiter: clientgo.DefaultTypedControllerRateLimiter[string](),
		metrics: &fakeMetricsProvider{}}
	build := controllerruntime.With(priorityqueue.Config[string]{MetricsProvider: q.metrics})
	q.Queue = build("test", limiter{q}).(*controllerruntime.Queue[string])
	q.locked.stats = q.Stats
	q.measure()
	return q, q.metrics
}

// newQueueWithTimeForwarder is for tests in virtual time.
func newQueueWithTimeForwarder() (*queue, *fakeMetricsProvider, func(time.Duration)) {
	q, m := newQueue()
	return q, m, time.Sleep
}

// measure reads the queue's numbers, after every call that may change them.
func (q *queue) measure() {
	st := q.Stats()
	m := q.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	depth := map[int]int{}
	for _, d := range st.ByPriority.Depths {
		depth[d.Priority] = d.Queued
	}
	m.depth = map[string]map[int]int{"test": depth}
	m.adds = map[string]int{"test": int(st.Adds)}
	m.retries = map[string]int{"test": int(st.Retries)}
}

func (q *queue) AddWithOpts(o AddOpts, keys ...string) { q.Queue.AddWithOpts(o, keys...); q.measure() }
func (q *queue) Add(key string)                        { q.Queue.Add(key); q.measure() }
func (q *queue) Done(key string)                       { q.Queue.Done(key); q.measure() }

func (q *queue) Get() (string, bool) {
	defer q.measure()
	return q.Queue.Get()
}

func (q *queue) GetWithPriority() (string, int, bool) {
	defer q.measure()
	return q.Queue.GetWithPriority()
}

func (q *queue) Len() int {
	defer q.measure()
	return q.Queue.Len()
}
