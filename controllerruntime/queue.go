// Package controllerruntime makes the controllers of sigs.k8s.io/controller-runtime work on a
// [priorityqueue.Queue]:
//
//	ctrl.NewControllerManagedBy(mgr).
//		For(&corev1.ConfigMap{}).
//		WithOptions(controller.Options{NewQueue: controllerruntime.NewQueue}).
//		Complete(reconciler)
//
// The queue implements controller-runtime's PriorityQueue, so the priorities of its handlers and of
// reconcile.Result arrive. With [With] it can do more: aging, fairness between namespaces, a least time
// between two reconciliations of an object.
//
// # Differences from controller-runtime's priority queue
//
//   - What is added is there when the call returns. No goroutine runs while no key waits for its time.
//   - The limiter is asked only if its answer can matter: several rate-limited adds of a key that waits for its
//     retry count as one failure.
//   - Keys of equal priority come in the order in which they became ready. For a key that is added while a
//     worker holds it that is the Done, as in client-go's queue, and until then Stats().Again counts it and Len does
//     not. For a waiting key that is added without a delay it is that add. controller-runtime gives both the place
//     of their first add, and counts the former in Len.
//   - ShutDown may be called more than once. ShutDownWithDrain waits until nothing is queued and nothing is
//     being processed; controller-runtime does not call it.
//   - A key that could not be found again, because it is not equal to itself, is refused with a panic.
//
// # Metrics
//
// The queue's metrics are in controller-runtime's registry, under controller-runtime's names, with its labels and
// help, beside those of controllers on the default queue. The manager serves them without any configuration.
// Config.MetricsProvider replaces them; a provider of workqueue.SetProvider does not.
package controllerruntime

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
	clientgo "k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NewQueue returns a queue for a controller: it is for the field NewQueue of controller.Options. The queue has
// the controller's name and limiter.
func NewQueue(name string, rateLimiter clientgo.TypedRateLimiter[reconcile.Request]) clientgo.TypedRateLimitingInterface[reconcile.Request] {
	return NewTypedQueue(name, rateLimiter)
}

// NewTypedQueue is NewQueue for controller.TypedOptions.
func NewTypedQueue[request comparable](name string, rateLimiter clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	return With(priorityqueue.Config[request]{})(name, rateLimiter)
}

// With returns a NewQueue whose queues are built as config says. If config has no name or no limiter, each has
// that of its controller.
//
//	controller.Options{NewQueue: controllerruntime.With(priorityqueue.Config[reconcile.Request]{
//		Group: func(r reconcile.Request) string { return r.Namespace },
//		Aging: time.Second,
//	})}
//
// (controller-runtime's handlers give what they list at the start the priority -100. With this Aging it has
// the same right as a new change after 100 seconds.)
func With[request comparable](config priorityqueue.Config[request]) func(string, clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	return func(name string, rateLimiter clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
		c := config
		c.Name = cmp.Or(c.Name, name)
		if c.RateLimiter == nil {
			c.RateLimiter = rateLimiter
		}
		if c.MetricsProvider == nil {
			c.MetricsProvider = registryMetrics()
		}
		return &Queue[request]{Queue: priorityqueue.New(c)}
	}
}

// Queue is a [priorityqueue.Queue] with the interface and the rules of controller-runtime's PriorityQueue. It is
// made by [NewQueue], [NewTypedQueue] or what [With] returns. The methods that controller-runtime does not know
// are those of the priorityqueue.Queue: GetContext and GetBatch hand out what is queued after ShutDown, too.
type Queue[request comparable] struct {
	*priorityqueue.Queue[request]
	// stopped tells that ShutDown was called. ShutDownWithDrain alone leaves it false.
	stopped atomic.Bool
}

var _ crpriority.PriorityQueue[int] = (*Queue[int])(nil)

// AddWithOpts adds items as o says. No priority means zero, and of After and the limiter's delay the shorter
// one counts. A negative After is now, whatever the limiter would say. After shutdown it does nothing.
func (q *Queue[request]) AddWithOpts(o crpriority.AddOpts, items ...request) {
	opts := priorityqueue.AddOpts{After: o.After, RateLimited: o.RateLimited && o.After >= 0}
	if o.Priority != nil {
		opts.Priority = *o.Priority
	}
	q.Queue.AddWithOpts(opts, items...)
}

// AddAfter adds item with priority zero when after has passed, or at once if that is not positive.
func (q *Queue[request]) AddAfter(item request, after time.Duration) {
	q.AddWithOpts(crpriority.AddOpts{After: after}, item)
}

// AddRateLimited adds item with priority zero after the delay that the limiter says.
func (q *Queue[request]) AddRateLimited(item request) {
	q.AddWithOpts(crpriority.AddOpts{RateLimited: true}, item)
}

// Get is GetWithPriority without the priority.
func (q *Queue[request]) Get() (item request, shutdown bool) {
	item, _, shutdown = q.GetWithPriority()
	return item, shutdown
}

// GetWithPriority blocks until a key can be handed out, and hands it to the caller, who must call Done with
// it. After ShutDown it returns shutdown = true without blocking, also if keys are queued, as in
// controller-runtime: what a controller has not begun when its context ends, or when it is no longer the
// leader, it is not to begin. After ShutDownWithDrain it hands out what is queued before that.
func (q *Queue[request]) GetWithPriority() (item request, priority int, shutdown bool) {
	if q.stopped.Load() {
		return item, 0, true
	}
	item, priority, shutdown = q.Queue.GetWithPriority()
	if !shutdown && q.stopped.Load() {
		// It came while this waited, or just before ShutDown. Nobody will process it.
		q.Done(item)
		var none request
		return none, 0, true
	}
	return item, priority, shutdown
}

// ShutDown makes the queue ignore what is added from now on, and hand out no more. Keys that workers hold are
// finished as usual. It may be called any number of times.
func (q *Queue[request]) ShutDown() {
	q.stopped.Store(true)
	q.Queue.ShutDown()
}
