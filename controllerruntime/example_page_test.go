package controllerruntime_test

import (
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// The page of package debug in a manager, beside its metrics, with the controller's queue and last errors.
func ExampleWrapReconciler_page() {
	setUp := func(mgr ctrl.Manager, myReconciler reconcile.Reconciler) error {
		page := debug.NewHandler(debug.Options{})
		if err := mgr.AddMetricsServerExtraHandler("/debug/workqueue", page); err != nil {
			return err
		}
		r := controllerruntime.WrapReconciler(myReconciler, page) // one for each controller
		return ctrl.NewControllerManagedBy(mgr).
			For(&corev1.ConfigMap{}).
			WithOptions(controller.Options{
				NewQueue: controllerruntime.With(priorityqueue.Config[reconcile.Request]{}, r.Watch),
			}).
			Complete(r)
	}
	_ = setUp
}
