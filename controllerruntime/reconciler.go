package controllerruntime

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Page shows queues and the calls for their keys. A *debug.Handler is one.
type Page interface {
	InspectQueue(name string, q any, untyped workqueue.Extended[any])
	InspectPool(name string, p worker.Inspector)
}

// passingPage is a Page that passes on the numbers of what it shows.
type passingPage interface {
	Metrics() workqueue.StatsProvider
}

// Options configure a [Reconciler].
type Options[request comparable] struct {
	// Page shows the controller's queue and what the reconciler does. Nil means none.
	Page Page
	// StuckAfter is how long a reconciliation may take before it is reported as stuck, once, to OnStuck, in
	// the log and on the page, with the stack of its goroutine. See [worker.Options]. Zero means never.
	StuckAfter time.Duration
	// OnStuck is called for a reconciliation that is stuck, with its context, in another goroutine.
	OnStuck func(ctx context.Context, r worker.RunningKey[request])
}

// Reconciler calls another reconciler and tracks its calls with a worker.Tracker. It is made by
// [WrapReconciler]. All methods may be called from any goroutine.
type Reconciler[request comparable] struct {
	reconciler reconcile.TypedReconciler[request]
	options    Options[request]
	// controller is nil until the controller has made its queue. complain is for calls before, and if there
	// are several.
	controller atomic.Pointer[controller[request]]
	queues     atomic.Int32
	complain   sync.Once
}

// reconcilerState is what a [Reconciler] leaves for its queue. The copies of a queue share it.
type reconcilerState[request comparable] struct {
	tracker atomic.Pointer[worker.Tracker[request]] // nil without a Reconciler
	// interrupted has the requests whose failures the controller's next Forget must leave alone, retried those
	// that Fail has added after their failure, and onHold the calls whose requests the controller's Done holds.
	interrupted, retried, onHold sync.Map
}

// controller is what a Reconciler knows of its controller.
type controller[request comparable] struct {
	queue   *Queue[request]
	tracker *worker.Tracker[request]
}

// WrapReconciler returns a reconciler that calls r, and passes on its results, errors and panics. A
// controller needs both it and its queue, [Reconciler.NewQueue] or what [Reconciler.With] returns. Without
// the queue r is called directly, nothing of what follows works, and the first call logs an error.
//
//	r := controllerruntime.WrapReconciler(mine, page)
//	ctrl.NewControllerManagedBy(mgr).
//		WithOptions(controller.Options{NewQueue: r.NewQueue}).
//		Complete(r)
//
// Then, in r:
//
//   - [worker.CallOf] returns what the tracker knows of the call that has the context. The context ends when
//     r returns, and earlier, with the cause [worker.ErrCanceled], when [Reconciler.Cancel] is called.
//
//   - When r returns an error because of UntilAdded of [worker.Call], that is no failure: the request comes
//     again at once, its failures are neither counted nor forgotten, and the limiter hears nothing. The
//     controller sees a success.
//
//   - When r returns an error and a RequeueAfter, controller-runtime ignores the RequeueAfter. Here it is the
//     least delay: the request is retried after it or after the limiter's delay, whichever is longer, unless
//     an event adds it earlier. The same holds for [worker.RetryAfter], and for an error of the API server
//     that suggests a delay, as one with the status 429 and a Retry-After does. The controller gets, and
//     logs, an error that names the delay and wraps that of r.
//
//   - [worker.Call.Hold] puts the request on hold after any result: no worker waits, and it does not start
//     again before it is released or its limit has passed. [ReadYourWrites] uses it. Until the hold ends
//     Stats.Processing has the request, and Stats.OnHold too; the controller does not count it.
//
//   - worker.RequeueAfter, [worker.Requeue], [worker.Every], [worker.Terminal] and [worker.Fatal] mean what
//     they mean to a pool, but Fatal does not end the controller: for it, both of the last two are a
//     reconcile.TerminalError.
//
//   - A Priority of reconcile.Result beside an error can raise the request's priority, but not lower it.
//     Beside one of the errors above it is ignored: worker.Requeue has a Priority of its own.
//
// The page has the controller's queue, the requests that are being reconciled, those that fail or were given
// up (by reconcile.TerminalError), and their last errors, as of a [worker.Pool]. The page may be
// nil. [WrapReconcilerWithOptions] also finds reconciliations that are stuck.
//
// Call WrapReconciler once for each controller. If two controllers share a Reconciler, it logs an error. A
// call takes a few microseconds more.
func WrapReconciler[request comparable](r reconcile.TypedReconciler[request],
	page Page) *Reconciler[request] {
	return WrapReconcilerWithOptions(r, Options[request]{Page: page})
}

// WrapReconcilerWithOptions is [WrapReconciler] with more options.
func WrapReconcilerWithOptions[request comparable](r reconcile.TypedReconciler[request],
	options Options[request]) *Reconciler[request] {
	return &Reconciler[request]{reconciler: r, options: options}
}

// NewQueue returns the queue of the controller, and shows it and the reconciler on the page, under the
// queue's name. It is for the field NewQueue of controller.Options.
func (r *Reconciler[request]) NewQueue(name string,
	rateLimiter clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	return r.With(priorityqueue.Config[request]{})(name, rateLimiter)
}

// With returns a [Reconciler.NewQueue] whose queue is configured by config, as the function [With] does.
func (r *Reconciler[request]) With(config priorityqueue.Config[request]) func(string,
	clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	return With(config, r.watch)
}

// watch makes q the queue of the controller.
func (r *Reconciler[request]) watch(q *Queue[request]) {
	c := &controller[request]{queue: q, tracker: worker.NewTracker(q, worker.Options[request]{
		// The controller logs.
		StuckAfter: r.options.StuckAfter, OnStuck: r.onStuck, Logger: slog.New(slog.DiscardHandler),
		MetricsProvider: q.metrics,
	})}
	q.calls.tracker.Store(c.tracker)
	r.controller.Store(c)
	r.queues.Add(1)
	name, page, inspector := q.Stats().Name, r.options.Page, c.tracker.Inspector()
	if provider, ok := q.metrics.(worker.InspectorProvider); ok {
		counted := inspector
		counted.Stats = c.changes
		switch passing, ok := page.(passingPage); {
		case any(page) == any(provider): // It is shown below.
		case ok && any(passing.Metrics()) == any(provider):
			inspector = counted // The page passes Stats on to the provider, which must get only these.
		default:
			provider.InspectPool(name, counted)
		}
	}
	if page == nil {
		return
	}
	page.InspectQueue(name, q, operate.Untyped(q))
	page.InspectPool(name, inspector)
}

// changes returns the numbers of the tracker that controller-runtime's own metrics do not have, and those
// that a page asks for.
func (c *controller[request]) changes() worker.Stats {
	s := c.tracker.Stats()
	return worker.Stats{
		Name: s.Name, Changes: s.Changes, OldestUnanswered: s.OldestUnanswered, OnHold: s.OnHold,
		HoldsToLimit: s.HoldsToLimit, HoldDurations: s.HoldDurations, RetryDelays: s.RetryDelays,
		BusiestShare: s.BusiestShare, Ended: s.Ended,
		Queue: s.Queue, LongestRunning: s.LongestRunning, UnfinishedWork: s.UnfinishedWork,
		Looping: s.Looping, GivenUpKeys: s.GivenUpKeys, Failing: s.Failing,
	}
}

// onStuck reports a call.
func (r *Reconciler[request]) onStuck(ctx context.Context, k worker.RunningKey[request]) {
	log.FromContext(ctx).Info("The reconciler is stuck", "running", k.Duration, "stack", k.Stack)
	if r.options.OnStuck != nil {
		r.options.OnStuck(ctx, k)
	}
}

var (
	errNoQueue = errors.New("controllerruntime: WrapReconciler without its queue: set NewQueue of " +
		"controller.Options to the Reconciler's NewQueue, or to what its With returns")
	errTwoQueues = errors.New("controllerruntime: one Reconciler for two controllers: call WrapReconciler " +
		"for each")
)

// complainOnce logs that the Reconciler is not wired as it must be.
func (r *Reconciler[request]) complainOnce(ctx context.Context, err error) {
	r.complain.Do(func() {
		log.FromContext(ctx).Error(err, "Attempts, causes and interruptions of the wrapped reconciler are "+
			"missing, or those of another controller")
	})
}

// Reconcile calls the other reconciler.
func (r *Reconciler[request]) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	c := r.controller.Load()
	if c == nil {
		r.complainOnce(ctx, errNoQueue)
		return r.reconciler.Reconcile(ctx, req)
	}
	if r.queues.Load() > 1 {
		r.complainOnce(ctx, errTwoQueues)
	}
	c.queue.calls.interrupted.Delete(req) // In case the controller did not call Forget after an earlier call.
	c.queue.calls.retried.Delete(req)
	entry := c.tracker.Begin(ctx, req)
	result, err := r.handle(c, entry, req)
	interrupted := entry.Interrupted()
	return c.answerFor(req, c.end(entry, req, meaning(result, err)), interrupted, result, err)
}

// handle makes the call. Some of r's errors it replaces by others, which say the same to the tracker and more
// to the controller.
func (r *Reconciler[request]) handle(c *controller[request], entry *worker.Tracked[request],
	req request) (result reconcile.Result, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		how := worker.ErrGoexit
		if v := recover(); v != nil { // It panics again from here, so that it has the reconciler's stack.
			defer panic(v)
			how = &worker.PanicError{Value: v, Stack: debug.Stack()}
		}
		c.noteRetry(req, c.end(entry, req, how))
	}()
	result, err = r.reconciler.Reconcile(entry.Context(), req)
	if d := leastDelay(result, err); d > 0 && worker.NextOf(entry.Context(), err) == worker.NextRetry {
		err = worker.RetryAfter(err, d)
		result.RequeueAfter = 0 // Or the controller would log that it ignores it.
	}
	returned = true
	return result, err
}

// end ends a call, and has the controller's Done put its request on hold if it must be.
func (c *controller[request]) end(entry *worker.Tracked[request], req request,
	err error) worker.Result[request] {
	end := entry.End(err)
	if entry.HasHold() {
		c.queue.calls.onHold.Store(req, entry)
	}
	return end
}

// noteRetry has the queue leave out the controller's add after a call that Fail has retried. The controller
// also makes it after a panic, which it recovers.
func (c *controller[request]) noteRetry(req request, end worker.Result[request]) {
	if end.Next == worker.NextRetry {
		c.queue.calls.retried.Store(req, true)
	}
}

// answerFor returns what the controller must get after a call that has ended so, and does what the controller
// does not. After it the controller calls
//
//	for an error        AddWithOpts(RateLimited), or nothing if it is a TerminalError. The tracker has
//	                    called the queue's Fail before, so the queue leaves this out
//	for RequeueAfter    Forget, AddWithOpts(After)
//	for Requeue         AddWithOpts(RateLimited)
//	otherwise           Forget: that is a success
//
// and then, always, Done.
func (c *controller[request]) answerFor(req request, end worker.Result[request], interrupted bool,
	result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	// As RequeueAfter, with a priority: the controller forgets the failures.
	case err != nil && end.Next == worker.NextRequeue:
		priority := c.queue.PriorityOf(req)
		if end.Priority != nil {
			priority = *end.Priority
		}
		c.queue.AddWithPriority(req, priority, end.After)
		return reconcile.Result{}, nil
	// An error after which the controller does nothing.
	case end.Next == worker.NextGiveUp && !errors.Is(err, reconcile.TerminalError(nil)):
		err = reconcile.TerminalError(err)
	case end.Next == worker.NextRetry:
		c.noteRetry(req, end)
	// A success, after which Forget must do nothing.
	case end.Next == worker.NextInterrupted || end.Next == worker.NextLost:
		c.queue.calls.interrupted.Store(req, true)
		if end.Next == worker.NextInterrupted && !interrupted {
			// The error is ErrAdded of another call, so no add of this request may have come.
			c.queue.AddWithPriority(req, c.queue.PriorityOf(req), 0)
		}
		return reconcile.Result{}, nil
	}
	return result, err
}

// leastDelay returns for how long a request that has failed with err should not come: the longer of what the
// reconciler and the API server have asked for.
func leastDelay(result reconcile.Result, err error) time.Duration {
	if err == nil || errors.Is(err, reconcile.TerminalError(nil)) {
		return 0
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return max(result.RequeueAfter, time.Duration(seconds)*time.Second)
}

// meaning returns the error by which a handler of package worker says what the result means to the
// controller.
func meaning(result reconcile.Result, err error) error {
	switch {
	//lint:ignore SA1019 the controller obeys Requeue until it is removed
	case err == nil && !result.Requeue && result.RequeueAfter <= 0:
		return nil
	case err == nil:
		return worker.RequeueAfter(max(result.RequeueAfter, 1)) // With Requeue the limiter delays it.
	case errors.Is(err, reconcile.TerminalError(nil)):
		return worker.Terminal(err)
	}
	return err
}

// AddCause adds req with priority zero and says why. It is for an event handler that adds requests by itself;
// [WithCauses] does this for the handler that it wraps. Before the controller has started it does nothing.
func (r *Reconciler[request]) AddCause(req request, cause workqueue.Cause) {
	if c := r.controller.Load(); c != nil {
		c.queue.AddCause(req, cause)
	}
}

// Cancel ends the context of the call that reconciles req, with the cause [worker.ErrCanceled], and reports
// whether there is one. See [worker.Pool.Cancel].
func (r *Reconciler[request]) Cancel(req request) bool {
	c := r.controller.Load()
	return c != nil && c.tracker.Cancel(req)
}

// Wedged returns an error if a restart of the program would help: see [worker.Tracker.Wedged]. It fits the
// probes of a manager. It is nil before the controller has started, and so on a replica that does not lead.
//
//	mgr.AddHealthzCheck("wedged", func(*http.Request) error { return r.Wedged(10 * time.Minute) })
func (r *Reconciler[request]) Wedged(limit time.Duration) error {
	c := r.controller.Load()
	if c == nil {
		return nil
	}
	return c.tracker.Wedged(limit)
}
