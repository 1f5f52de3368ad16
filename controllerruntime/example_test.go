package controllerruntime_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlqueue "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A controller on the queue of package priorityqueue. Its metrics are in the manager's registry.
func Example() {
	setUp := func(mgr ctrl.Manager, r reconcile.Reconciler) error {
		return ctrl.NewControllerManagedBy(mgr).
			For(&corev1.ConfigMap{}).
			WithOptions(controller.Options{NewQueue: controllerruntime.NewQueue}).
			Complete(r)
	}
	_ = setUp
}

// Namespaces take turns, no more than five objects of one are reconciled at once, and what was listed at the
// start has after a minute the priority of what changes then.
func ExampleWith() {
	newQueue := controllerruntime.With(priorityqueue.Config[reconcile.Request]{
		Group: func(r reconcile.Request) string { return r.Namespace },
		Limit: func(string) int { return 5 },
		Aging: time.Minute / 100,
	})
	_ = controller.Options{MaxConcurrentReconciles: 50, NewQueue: newQueue}
}

// controller-runtime makes the queue and calls it. This shows what it calls: two adds of a request are one,
// and of all that are queued the one with the highest priority comes first.
func ExampleNewQueue() {
	queue := controllerruntime.NewQueue("web", nil).(ctrlqueue.PriorityQueue[reconcile.Request])
	request := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
	}
	low, high := -100, 0
	queue.AddWithOpts(ctrlqueue.AddOpts{Priority: &low}, request("listed"), request("also-listed"))
	queue.AddWithOpts(ctrlqueue.AddOpts{Priority: &high}, request("changed"), request("changed"))
	for range queue.Len() {
		r, priority, _ := queue.GetWithPriority()
		fmt.Println(r, priority)
		queue.Done(r)
	}
	// Output:
	// default/changed 0
	// default/listed -100
	// default/also-listed -100
}

// The page of package debug in a manager, beside its metrics, with the controller's queue and last errors.
// Those who read the metrics can read it. The reconciler stops waiting when there is something newer, and the
// event handler says why it adds a request. examples/manager is the whole program, with traces.
func ExampleWrapReconciler_page() {
	mine := reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		log.FromContext(ctx).Info("Reconciling", "attempt", worker.CallOf(ctx).Attempt(), "causes",
			worker.CallOf(ctx).Causes().String())
		// What must be finished has ctx, what is worth interrupting has this. Its error is no failure.
		return reconcile.Result{}, waitUntilReady(worker.CallOf(ctx).UntilAdded(), r)
	})
	type page interface { // debug.NewHandler(debug.Options{})
		http.Handler
		controllerruntime.Page
	}
	setUp := func(mgr ctrl.Manager, page page) error {
		if err := mgr.AddMetricsServerExtraHandler("/debug/workqueue", page); err != nil {
			return err
		}
		r := controllerruntime.WrapReconciler(mine, page) // one for each controller
		return ctrl.NewControllerManagedBy(mgr).
			Named("rollouts").
			Watches(&appsv1.Deployment{}, controllerruntime.WithCauses(&handler.EnqueueRequestForObject{}, nil)).
			WithOptions(controller.Options{NewQueue: r.NewQueue}).
			Complete(r)
	}
	_ = setUp
}

func waitUntilReady(ctx context.Context, _ reconcile.Request) error {
	<-ctx.Done()
	return ctx.Err()
}

// A reconciliation that takes longer than ten minutes is reported, with its stack, and canceled.
func ExampleWrapReconcilerWithOptions() {
	wrap := func(mine reconcile.Reconciler,
		page controllerruntime.Page) *controllerruntime.Reconciler[reconcile.Request] {
		var r *controllerruntime.Reconciler[reconcile.Request]
		r = controllerruntime.WrapReconcilerWithOptions(mine, controllerruntime.Options[reconcile.Request]{
			Page:       page,
			StuckAfter: 10 * time.Minute,
			OnStuck: func(_ context.Context, k worker.RunningKey[reconcile.Request]) {
				r.Cancel(k.Key)
			},
		})
		return r
	}
	_ = wrap
}

// Annotations of this controller's own do not interrupt it.
func ExampleWithCauses() {
	h := controllerruntime.WithCauses(&handler.EnqueueRequestForObject{},
		func(e controllerruntime.Event[client.Object]) workqueue.Cause {
			cause := controllerruntime.CauseOf(e)
			if e.Type == "Update" && e.New.GetGeneration() != 0 && e.Old.GetGeneration() == e.New.GetGeneration() {
				cause.Quiet = true
			}
			return cause
		})
	_ = h
}
