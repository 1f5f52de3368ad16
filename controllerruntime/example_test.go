package controllerruntime_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlqueue "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
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
