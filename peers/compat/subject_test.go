package compat

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	peer "k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// setup chooses the queues that a differential run builds.
type setup struct {
	// Named queues have metrics.
	Named bool
	// Mixed queues have client-go's queue below our layers.
	Mixed bool
	// Custom queues have a Queue of the user's, which is last in, first out.
	Custom  bool
	Limiter limiterKind
}

func (s setup) name() string {
	if s.Named {
		return "differential"
	}
	return ""
}

type limiterKind string

const (
	exponential limiterKind = "exponential"
	fastSlow    limiterKind = "fast and slow"
	cut         limiterKind = "cut"
	longestOf   limiterKind = "the longest of two"
	byDefault   limiterKind = "default"
)

var limiterKinds = []limiterKind{exponential, fastSlow, cut, longestOf, byDefault}

// epoch is when the fake clocks start.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// subject is one of the two queues of a differential run, with what can be seen of it.
type subject[K comparable] struct {
	keys    []K
	clock   *testingclock.FakeClock
	metrics *testkit.Recorder
	order   *tracingQueue[K] // nil for the queue's own
	queue   peer.TypedRateLimitingInterface[K]

	mu sync.Mutex
	// got are the results of the calls of Get that have returned since they were last looked at, and
	// blocked the number of those that have not. Both are guarded by mu.
	got     []string
	blocked int
}

func newSubject[K comparable](keys []K) *subject[K] {
	return &subject[K]{
		keys:    keys,
		clock:   testingclock.NewFakeClock(epoch),
		metrics: &testkit.Recorder{},
	}
}

func newOurs[K comparable](s setup, keys []K) *subject[K] {
	q := newSubject(keys)
	name, provider := s.name(), q.metrics
	var order workqueue.Queue[K]
	if s.Custom {
		q.order = &tracingQueue[K]{}
		order = q.order
	}
	var base workqueue.TypedInterface[K]
	switch {
	case s.Mixed:
		base = peer.NewTypedWithConfig(peer.TypedQueueConfig[K]{
			Name: name, MetricsProvider: theirProvider{provider}, Clock: q.clock, Queue: order,
		})
	case s.Custom:
		base = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
			Name: name, MetricsProvider: provider, Clock: q.clock, Queue: order,
		})
	}
	q.queue = workqueue.NewTypedRateLimitingQueueWithConfig(ourLimiter[K](s.Limiter),
		workqueue.TypedRateLimitingQueueConfig[K]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
				Name: name, MetricsProvider: provider, Clock: q.clock, Queue: base,
			}),
		})
	return q
}

func newTheirs[K comparable](s setup, keys []K) *subject[K] {
	q := newSubject(keys)
	name, provider := s.name(), theirProvider{q.metrics}
	var base peer.TypedInterface[K]
	if s.Custom {
		q.order = &tracingQueue[K]{}
		base = peer.NewTypedWithConfig(peer.TypedQueueConfig[K]{
			Name: name, MetricsProvider: provider, Clock: q.clock, Queue: q.order,
		})
	}
	q.queue = peer.NewTypedRateLimitingQueueWithConfig(theirLimiter[K](s.Limiter),
		peer.TypedRateLimitingQueueConfig[K]{
			DelayingQueue: peer.NewTypedDelayingQueueWithConfig(peer.TypedDelayingQueueConfig[K]{
				Name: name, MetricsProvider: provider, Clock: q.clock, Queue: base,
			}),
		})
	return q
}

// newBucket has few tokens, so that a run of some calls sees it empty.
func newBucket() *rate.Limiter { return rate.NewLimiter(rate.Every(300*time.Millisecond), 3) }

func ourLimiter[K comparable](kind limiterKind) workqueue.TypedRateLimiter[K] {
	l := workqueue.NewTypedItemExponentialFailureRateLimiter[K](20*time.Millisecond, 300*time.Millisecond)
	switch kind {
	case fastSlow:
		return workqueue.NewTypedItemFastSlowRateLimiter[K](5*time.Millisecond, 2*time.Second, 2)
	case cut:
		return workqueue.NewTypedWithMaxWaitRateLimiter(l, 50*time.Millisecond)
	case longestOf:
		return workqueue.NewTypedMaxOfRateLimiter(l, &workqueue.TypedBucketRateLimiter[K]{Limiter: newBucket()})
	case byDefault:
		return workqueue.DefaultTypedControllerRateLimiter[K]()
	}
	return l
}

func theirLimiter[K comparable](kind limiterKind) peer.TypedRateLimiter[K] {
	l := peer.NewTypedItemExponentialFailureRateLimiter[K](20*time.Millisecond, 300*time.Millisecond)
	switch kind {
	case fastSlow:
		return peer.NewTypedItemFastSlowRateLimiter[K](5*time.Millisecond, 2*time.Second, 2)
	case cut:
		return peer.NewTypedWithMaxWaitRateLimiter(l, 50*time.Millisecond)
	case longestOf:
		return peer.NewTypedMaxOfRateLimiter(l, &peer.TypedBucketRateLimiter[K]{Limiter: newBucket()})
	case byDefault:
		return peer.DefaultTypedControllerRateLimiter[K]()
	}
	return l
}

// startGet calls Get in a goroutine that may stay blocked.
func (q *subject[K]) startGet() {
	q.mu.Lock()
	q.blocked++
	q.mu.Unlock()
	go func() {
		key, shutdown := q.queue.Get()
		q.mu.Lock()
		defer q.mu.Unlock()
		q.blocked--
		if shutdown {
			q.got = append(q.got, "shutdown")
		} else {
			q.got = append(q.got, fmt.Sprint("key", slices.Index(q.keys, key)))
		}
	}()
}

// observed is what there is to see of a subject after a call.
type observed struct {
	Len          int
	ShuttingDown bool
	Requeues     []int

	Got     []string
	Blocked int
	// Calls are those that the user's Queue has seen.
	Calls []string

	Adds, Retries, Depth  float64
	Latency, WorkDuration []float64
	// These are in nanoseconds, because client-go adds floating-point numbers in random order.
	Unfinished, Longest int64
}

// observe waits until the queue has nothing left to do, and returns what is to be seen since the
// last time.
func (q *subject[K]) observe() observed {
	synctest.Wait()
	o := observed{
		Len:          q.queue.Len(),
		ShuttingDown: q.queue.ShuttingDown(),
	}
	for _, key := range q.keys {
		o.Requeues = append(o.Requeues, q.queue.NumRequeues(key))
	}
	m := q.metrics
	o.Latency, o.WorkDuration = m.Observations("latency"), m.Observations("work")
	// Several workers may have got their keys at once.
	slices.Sort(o.Latency)
	slices.Sort(o.WorkDuration)
	o.Adds, o.Retries, o.Depth = m.Value("adds"), m.Value("retries"), m.Value("depth")
	if !o.ShuttingDown {
		// Afterwards client-go leaves them as they are: it fails the conformance suite's MetricsAfterShutDown.
		o.Unfinished = int64(math.Round(m.Value("unfinished") * 1e9))
		o.Longest = int64(math.Round(m.Value("longest") * 1e9))
	}
	if q.order != nil {
		o.Calls, q.order.calls = q.order.calls, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	o.Blocked, o.Got, q.got = q.blocked, q.got, nil
	// Getters that were woken by one call return in any order.
	slices.Sort(o.Got)
	return o
}

// tracingQueue is a Queue, of either package, that hands out the key that came last. A key that is
// touched comes last anew. It writes down what is asked of it.
type tracingQueue[K comparable] struct {
	keys  []K
	calls []string
}

func (q *tracingQueue[K]) Touch(key K) {
	q.calls = append(q.calls, fmt.Sprint("Touch ", key))
	if i := slices.Index(q.keys, key); i >= 0 {
		q.keys = append(slices.Delete(q.keys, i, i+1), key)
	}
}

func (q *tracingQueue[K]) Push(key K) {
	q.calls = append(q.calls, fmt.Sprint("Push ", key))
	q.keys = append(q.keys, key)
}

func (q *tracingQueue[K]) Len() int { return len(q.keys) }

func (q *tracingQueue[K]) Pop() K {
	last := len(q.keys) - 1
	key := q.keys[last]
	q.keys = q.keys[:last]
	q.calls = append(q.calls, fmt.Sprint("Pop ", key))
	return key
}
