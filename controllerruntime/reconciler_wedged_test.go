package controllerruntime_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
)

// A probe fails when every worker of the controller has been in a reconciliation for too long while a request is
// queued, and not before the controller has started.
func TestReconcilerWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(context.Context, string) (reconcile.Result, error) {
			time.Sleep(5 * time.Hour)
			return reconcile.Result{}, nil
		}
		r := controllerruntime.WrapReconciler(reconcile.TypedFunc[string](hang), nil)
		if err := r.Wedged(0); err != nil {
			t.Errorf("before the start: %v", err)
		}
		q := r.NewQueue("wedged", nil)
		q.Add("a")
		go func() {
			req, _ := q.Get()
			_, _ = r.Reconcile(t.Context(), req)
			q.Forget(req)
			q.Done(req)
		}()
		time.Sleep(time.Hour)
		if err := r.Wedged(10 * time.Minute); err != nil {
			t.Errorf("with nothing to do: %v", err)
		}
		q.Add("b")
		time.Sleep(time.Hour)
		if err := r.Wedged(10 * time.Minute); err == nil || !strings.Contains(err.Error(), "with key a") {
			t.Errorf("Wedged() = %v", err)
		}
		time.Sleep(4 * time.Hour)
		if err := r.Wedged(10 * time.Minute); err != nil {
			t.Errorf("after the reconciliation has ended: %v", err)
		}
		q.ShutDown()
	})
}
