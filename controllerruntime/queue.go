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
// # Failures
//
// controller-runtime's own queue doubles the delay with each failed call, even if events
// brought the key. This one counts a failure once for each delay that was served, whichever limiter the
// controller has: an object that is broken for ten seconds, with an event every 50 ms, is reconciled a
// fraction of a second after its repair. [NewRateLimiter] does so for controllers that keep
// controller-runtime's queue.
//
// A failure can have a least delay, as a server asks for by a Retry-After. controller-runtime ignores a
// RequeueAfter that is returned with an error. With [WrapReconciler] it counts: see there.
//
// # One wrapper for all
//
// [WrapReconciler] makes one wrapper for the queue and the reconciler of a controller. With it a reconciler
// can stop waiting when there is something newer (UntilAdded of worker.Call), and learns why it was called
// (Causes) and how often it has failed (Attempt). The page of package debug shows the last errors and can
// cancel, retry and forget. [WithCauses] makes event handlers say why they add a request. The program
// examples/manager has all of it; the documentation of package worker says what an event handler should say.
//
// # Differences from controller-runtime's priority queue
//
// All 16 specs of controller-runtime's queue pass with this one, and so do its other tests but for those of
// its internals (see peers/crspecs). What differs is this:
//
//   - What is added is there when the call returns. No goroutine runs while no key waits for its time.
//   - The limiter is asked only if its answer can matter: several rate-limited adds of a key that waits for
//     its retry count as one failure. It is not asked for an add with a negative After.
//   - A waiting key that is added without a delay has the place in line of that add. In controller-runtime it
//     keeps the place of its first add.
//   - Both count the keys of up to 25 priorities separately. When a 26th comes, controller-runtime counts
//     every key as exceeded_cardinality_limit, and never changes the 25 counts again. Here the
//     25 continue to count, and only keys of further priorities count as exceeded_cardinality_limit.
//   - ShutDown may be called more than once. It drops what is queued, so nothing stays counted.
//     ShutDownWithDrain waits until nothing is queued and nothing is being processed; controller-runtime does
//     not call it.
//   - A key that could not be found again, because it is not equal to itself, is refused with a panic.
//
// # Metrics
//
// The queue's metrics are in controller-runtime's registry, under controller-runtime's names, with its labels
// and help, beside those of controllers on the default queue. The manager serves them without any
// configuration. With [WrapReconciler] there is also how long it takes from the first add of a request to the
// first reconciliation that succeeds: workqueue_pool_change_duration_seconds, and
// workqueue_pool_oldest_change_age_seconds for what has not succeeded yet; workqueue_pool_keys_on_hold,
// workqueue_pool_holds_to_limit_total and workqueue_pool_hold_duration_seconds, of requests on hold;
// workqueue_pool_retry_delay_seconds; workqueue_pool_busiest_key_share; workqueue_pool_looping_keys, of
// requests that interrupt themselves; and workqueue_pool_given_up_keys. Config.MetricsProvider replaces them;
// a provider of workqueue.SetProvider does not.
package controllerruntime

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
	clientgo "k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NewQueue returns a queue for a controller: it is for the field NewQueue of controller.Options. The queue
// has the controller's name and limiter.
func NewQueue(
	name string, rateLimiter clientgo.TypedRateLimiter[reconcile.Request],
) clientgo.TypedRateLimitingInterface[reconcile.Request] {
	return NewTypedQueue(name, rateLimiter)
}

// NewTypedQueue is NewQueue for controller.TypedOptions.
func NewTypedQueue[request comparable](name string,
	rateLimiter clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	return With(priorityqueue.Config[request]{})(name, rateLimiter)
}

// NewRateLimiter returns a limiter for the field RateLimiter of controller.Options, with the numbers of
// client-go's default: 5 ms to 1000 s, and for all objects together 10 a second after a burst of 100. Unlike
// it, it counts a failure once for each delay that was served, see [workqueue.NewTypedControllerRateLimiter].
// It works on controller-runtime's own queues as well.
func NewRateLimiter() clientgo.TypedRateLimiter[reconcile.Request] {
	return NewTypedRateLimiter[reconcile.Request]()
}

// NewTypedRateLimiter is NewRateLimiter for controller.TypedOptions.
func NewTypedRateLimiter[request comparable]() clientgo.TypedRateLimiter[request] {
	return workqueue.NewTypedControllerRateLimiter[request](nil)
}

// With returns a NewQueue whose queues are configured by config. If config has no name or no limiter, each
// queue has that of its controller. Each queue is passed to the functions onNew before its controller gets
// it, so that a program can show it on its debug page, pause it or look into it.
//
//	controller.Options{NewQueue: controllerruntime.With(priorityqueue.Config[reconcile.Request]{
//		Group: func(r reconcile.Request) string { return r.Namespace },
//		Aging: time.Second,
//	})}
//
// (controller-runtime's handlers give what they list at the start the priority -100. With this Aging it has
// the same right as a new change after 100 seconds.)
func With[request comparable](config priorityqueue.Config[request],
	onNew ...func(*Queue[request])) func(string,
	clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	type limiter = clientgo.TypedRateLimiter[request]
	return func(name string, rateLimiter limiter) clientgo.TypedRateLimitingInterface[request] {
		c := config
		c.Name = cmp.Or(c.Name, name)
		if c.RateLimiter == nil {
			c.RateLimiter = rateLimiter
		}
		if c.MetricsProvider == nil {
			c.MetricsProvider = registryMetrics()
		}
		q := &Queue[request]{Queue: priorityqueue.New(c), calls: new(reconcilerState[request]),
			dropped: new(droppedKeys[request]), metrics: c.MetricsProvider}
		for _, f := range onNew {
			f(q)
		}
		return q
	}
}

// registryMetrics returns the provider of the queues that have no provider of their own. Its metrics are in
// controller-runtime's registry, beside those of the controllers on the default queue: the first call joins
// it. It returns nil if that fails, which is logged once.
var registryMetrics = sync.OnceValue(func() workqueue.StatsProvider {
	p, err := prom.Join(metrics.Registry, prom.Options{ControllerRuntime: true})
	if err != nil {
		// A controller without metrics is better than none.
		log.Log.WithName("workqueue").Error(err, "The queues of package controllerruntime have no metrics")
		return nil
	}
	return p
})

// Queue is a [priorityqueue.Queue] with the interface and the rules of controller-runtime's PriorityQueue. It
// is made by [NewQueue], [NewTypedQueue] or what [With] returns. The methods that controller-runtime does not
// know are those of the priorityqueue.Queue.
type Queue[request comparable] struct {
	*priorityqueue.Queue[request]
	calls   *reconcilerState[request]
	dropped *droppedKeys[request]
	metrics workqueue.MetricsProvider
	// cause is that of all adds, in the copy of a queue that an event handler of WithCauses gets. Otherwise
	// it is nil.
	cause *workqueue.Cause
}

var _ crpriority.PriorityQueue[int] = (*Queue[int])(nil)

// AddWithOpts adds items as o says. No priority means zero, and of After and the limiter's delay the shorter
// one counts. A negative After means now: the limiter is not asked. A delayed add of a key that is being
// reconciled counts as its reconciler's RequeueAfter, which Config.MaxDelay does not bound. After shutdown it
// does nothing.
func (q *Queue[request]) AddWithOpts(o crpriority.AddOpts, items ...request) {
	opts := priorityqueue.AddOpts{After: o.After, RateLimited: o.RateLimited && o.After >= 0, Cause: q.cause}
	if o.Priority != nil {
		opts.Priority = *o.Priority
	}
	switch {
	// The controller, when a reconciler has asked for RequeueAfter.
	case q.cause == nil && o.After > 0 && !opts.RateLimited:
		for _, item := range items {
			q.AddWithPriority(item, opts.Priority, o.After)
		}
	// An event handler, an add without delay, or the controller, when a reconciler has failed. If it was a
	// Reconciler, Fail has added the item with its priority: a second add would count as another retry, and is
	// only made for a higher one, as reconcile.Result may have.
	default:
		if opts.RateLimited && q.cause == nil {
			items = slices.DeleteFunc(slices.Clone(items), func(item request) bool {
				_, retried := q.calls.retried.LoadAndDelete(item)
				return retried && opts.Priority <= q.PriorityOf(item)
			})
		}
		q.Queue.AddWithOpts(opts, items...)
	}
}

// Add adds item with priority zero.
func (q *Queue[request]) Add(item request) {
	if q.cause != nil {
		q.AddWithOpts(crpriority.AddOpts{}, item)
	} else {
		q.Queue.Add(item)
	}
}

// AddAfter adds item with priority zero when after has passed, or at once if that is not positive.
func (q *Queue[request]) AddAfter(item request, after time.Duration) {
	q.AddWithOpts(crpriority.AddOpts{After: after}, item)
}

// AddRateLimited adds item with priority zero after the delay that the limiter says.
func (q *Queue[request]) AddRateLimited(item request) {
	q.AddWithOpts(crpriority.AddOpts{RateLimited: true}, item)
}

// Len returns the number of keys that need processing, as in controller-runtime: also those that were added
// again while a worker has them, but for keys on hold.
func (q *Queue[request]) Len() int {
	st := q.Stats()
	return st.Queued + st.Again
}

// ShutDown makes the queue ignore what is added from now on, and hand out no more, as in controller-runtime:
// a controller must not begin anything when its context has ended, or when it is no longer the leader. What
// is queued is dropped, and every getter returns at once with shutdown = true. Keys that workers hold are
// finished as usual; all holds end. It may be called any number of times. [Queue.DropQueued] returns the keys
// that were dropped.
func (q *Queue[request]) ShutDown() {
	q.dropped.add(q.ShutDownNow())
	q.endHolds()
}

// ShutDownWithDrain ends all holds, and then is that of [priorityqueue.Queue].
func (q *Queue[request]) ShutDownWithDrain() {
	q.endHolds()
	q.Queue.ShutDownWithDrain()
}

// ShutDownContext ends all holds, and then is that of [priorityqueue.Queue].
func (q *Queue[request]) ShutDownContext(ctx context.Context) error {
	q.endHolds()
	return q.Queue.ShutDownContext(ctx)
}

// endHolds ends all holds, and lets no key be put on hold any more.
func (q *Queue[request]) endHolds() {
	if tracker := q.calls.tracker.Load(); tracker != nil {
		tracker.EndHolds()
	}
}

// DropQueued drops what is still queued, as priorityqueue's does. It returns these keys after those
// that ShutDown has dropped, so that a [worker.Pool] on the queue has them in its Left. Each key is returned
// once. Before shutdown it does nothing, and returns nil.
func (q *Queue[request]) DropQueued() []request {
	return append(q.dropped.take(), q.Queue.DropQueued()...)
}

// droppedKeys are the keys that ShutDown has dropped and that nobody has asked for yet. The copies of a queue
// share them.
type droppedKeys[request comparable] struct {
	mu   sync.Mutex
	keys []request
}

func (d *droppedKeys[request]) add(keys []request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys = append(d.keys, keys...)
}

func (d *droppedKeys[request]) take() []request {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := d.keys
	d.keys = nil
	return keys
}

// Done says that the controller has finished with item, from Get. If the call of a [Reconciler] that has just
// ended for it has put it on hold, it is done when that ends.
func (q *Queue[request]) Done(item request) {
	if call, isOnHold := q.calls.onHold.LoadAndDelete(item); isOnHold {
		call.(*worker.Tracked[request]).Done(func() { q.Queue.Done(item) })
		return
	}
	q.Queue.Done(item)
}

// Forget makes the limiter forget the failures of item. It does nothing right after a call of a
// [Reconciler] for item that was interrupted: then the failures stay.
func (q *Queue[request]) Forget(item request) {
	if _, interrupted := q.calls.interrupted.LoadAndDelete(item); !interrupted {
		q.Queue.Forget(item)
	}
}

// Below returns the queue that q is made of, so that tools show only one of them.
func (q *Queue[request]) Below() any { return q.Queue }
