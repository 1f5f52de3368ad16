package controllerruntime_test

import (
	"context"
	"testing"

	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// What a call of a wrapped reconciler costs.
func BenchmarkReconcile(b *testing.B) {
	r := controllerruntime.WrapReconciler(reconcile.Func(func(context.Context,
		reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	}), &page{})
	q := r.With(priorityqueue.Config[reconcile.Request]{})("",
		clientgo.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Reconcile(ctx, reconcile.Request{}); err != nil {
			b.Fatal(err)
		}
	}
}
