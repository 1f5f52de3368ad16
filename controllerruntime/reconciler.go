package controllerruntime

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Page shows queues, and what is done with their keys. It is a *debug.Handler. If it has the method InspectPool of
// [worker.InspectorProvider], that is called instead of WatchPoolKeys, and the page has all that a worker.Inspector has.
type Page interface {
	InspectQueue(name string, q workqueue.Inspector)
	WatchPoolKeys(name string, snapshot func(limit int) worker.Snapshot[any])
}

// Options configure a [Reconciler].
type Options[request comparable] struct {
	// Page shows the controller's queue and what the reconciler does. Nil means none.
	Page Page
	// StuckAfter is how long a reconciliation may take before it is reported as stuck, once, to OnStuck, in the log and on
	// the page, with the stack of its goroutine. See [worker.Options]. Zero means never.
	StuckAfter time.Duration
	// OnStuck is called for a reconciliation that is stuck, with its context, in another goroutine.
	OnStuck func(ctx context.Context, r worker.RunningKey[request])
}

// Reconciler calls another reconciler and knows what package worker knows of the calls of a handler. It is made by
// [WrapReconciler]. All methods may be called from any goroutine.
type Reconciler[request comparable] struct {
	reconciler reconcile.TypedReconciler[request]
	options    Options[request]
	// controller is nil until Watch.
	controller atomic.Pointer[controller[request]]
}

// controller is what a Reconciler knows of its controller.
type controller[request comparable] struct {
	queue *Queue[request]
	pool  *worker.Pool[request] // keeps the books
}

// WrapReconciler returns a reconciler that calls r, whose results, errors and panics it passes on. A controller needs both
// it and its queue:
//
//	r := controllerruntime.WrapReconciler(mine, page)
//	ctrl.NewControllerManagedBy(mgr).
//		WithOptions(controller.Options{NewQueue: r.NewQueue}).
//		Complete(r)
//
// Then, in r:
//
//   - [worker.UntilAdded], [worker.Causes], [worker.Attempt] and [worker.Priority] work with the context. That ends when r
//     returns, or with the cause [worker.ErrCanceled] by [Reconciler.Cancel].
//   - When r returns an error because of worker.UntilAdded, that is no failure: the request comes again at once, its failures
//     are neither counted nor forgotten, and the limiter hears nothing. The controller sees a success.
//
// The page has the controller's queue, the requests that are being reconciled, those that fail or were given up (by
// reconcile.TerminalError), and their last attempts, as a [worker.Pool] keeps them. It may be nil. [WrapReconcilerWithOptions]
// also finds reconciliations that are stuck.
//
// Each controller needs one of its own. A call takes a few microseconds more.
func WrapReconciler[request comparable](r reconcile.TypedReconciler[request], page Page) *Reconciler[request] {
	return WrapReconcilerWithOptions(r, Options[request]{Page: page})
}

// WrapReconcilerWithOptions is [WrapReconciler] with more options.
func WrapReconcilerWithOptions[request comparable](r reconcile.TypedReconciler[request], options Options[request]) *Reconciler[request] {
	return &Reconciler[request]{reconciler: r, options: options}
}

// NewQueue returns the queue of the controller. It is for the field NewQueue of controller.Options.
func (r *Reconciler[request]) NewQueue(name string, rateLimiter clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	return r.With(priorityqueue.Config[request]{})(name, rateLimiter)
}

// With returns a NewQueue whose queue is configured by config, as the function [With] does.
func (r *Reconciler[request]) With(config priorityqueue.Config[request]) func(string, clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	return With(config, r.Watch)
}

// Watch makes q the queue of the controller, and shows it and the reconciler on the page, under the queue's name.
// [Reconciler.NewQueue] and [Reconciler.With] call it. It can also be passed to the function [With]. Before, the Reconciler
// only passes calls on.
func (r *Reconciler[request]) Watch(q *Queue[request]) {
	c := &controller[request]{queue: q}
	c.pool = worker.New(observed[request]{q}, r.handle, worker.Options[request]{
		StuckAfter: r.options.StuckAfter, OnStuck: r.onStuck,
	})
	r.controller.Store(c)
	page := r.options.Page
	if page == nil {
		return
	}
	name := q.Stats().Name
	page.InspectQueue(name, workqueue.Inspect(q))
	i := worker.Inspect(c.pool)
	i.Queue = q
	if p, ok := page.(interface {
		InspectPool(name string, i worker.Inspector)
	}); ok {
		p.InspectPool(name, i)
	} else {
		page.WatchPoolKeys(name, i.Snapshot)
	}
}

// onStuck reports a call.
func (r *Reconciler[request]) onStuck(ctx context.Context, k worker.RunningKey[request]) {
	log.FromContext(ctx).Info("The reconciler is stuck", "running", k.Duration, "stack", k.Stack)
	if r.options.OnStuck != nil {
		r.options.OnStuck(ctx, k)
	}
}

// answer is what the other reconciler has returned. The context of its call has it.
type answer struct {
	result reconcile.Result
	err    error
}

type answerKey struct{}

// Reconcile calls the other reconciler.
func (r *Reconciler[request]) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	c := r.controller.Load()
	if c == nil {
		return r.reconciler.Reconcile(ctx, req)
	}
	c.queue.interrupted.Delete(req) // In case no Forget followed an earlier call.
	var a answer
	if called := c.pool.Handle(context.WithValue(ctx, answerKey{}, &a), req); called.Next == worker.NextInterrupted {
		// The controller forgets the failures after a success, which this is not.
		c.queue.interrupted.Store(req, nil)
		if k, _ := c.queue.SnapshotKey(req); !k.Again || !k.Due.IsZero() { // r has returned worker.ErrAdded without having it from worker.UntilAdded.
			c.queue.AddWithPriority(req, c.queue.PriorityOf(req), 0)
		}
		return reconcile.Result{}, nil
	}
	return a.result, a.err
}

// handle is the handler of the pool. It answers what the result means to the controller.
func (r *Reconciler[request]) handle(ctx context.Context, req request) error {
	a := ctx.Value(answerKey{}).(*answer)
	a.result, a.err = r.reconciler.Reconcile(ctx, req)
	switch {
	case a.err == nil && a.result.IsZero():
		return nil
	case a.err == nil:
		return worker.RequeueAfter(a.result.RequeueAfter)
	case errors.Is(a.err, reconcile.TerminalError(nil)):
		return worker.Terminal(a.err)
	}
	return a.err
}

// AddCause adds req with priority zero and says why. It is for an event handler that adds requests by itself: one that is
// wrapped by [WithCauses] needs it not. Before the controller has started it does nothing.
func (r *Reconciler[request]) AddCause(req request, cause workqueue.Cause) {
	if c := r.controller.Load(); c != nil {
		c.queue.AddCause(req, cause)
	}
}

// Cancel ends the context of the call that reconciles req, with the cause [worker.ErrCanceled], and reports whether there is
// one. See [worker.Pool.Cancel].
func (r *Reconciler[request]) Cancel(req request) bool {
	c := r.controller.Load()
	return c != nil && c.pool.Cancel(req)
}

// observed is the queue without the methods that add a request again and forget it: the controller does both.
type observed[request comparable] struct{ *Queue[request] }

func (observed[request]) AddRateLimited(request)                      {}
func (observed[request]) AddAfter(request, time.Duration)             {}
func (observed[request]) AddWithPriority(request, int, time.Duration) {}
func (observed[request]) Forget(request)                              {}
