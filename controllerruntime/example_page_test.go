package controllerruntime_test

import (
	"context"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/worker"
)

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
