package controllerruntime_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
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
