package controllerruntime_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// page keeps what a Reconciler shows.
type page struct {
	name    string
	queue   any
	untyped workqueue.Extended[any]
	pool    worker.Inspector
}

func (p *page) InspectQueue(name string, q any, untyped workqueue.Extended[any]) {
	p.name, p.queue, p.untyped = name, q, untyped
}

func (p *page) InspectPool(_ string, i worker.Inspector) { p.pool = i }

// Results, errors and panics are the reconciler's, and the memory is bounded.
func TestReconcilerPassesOn(t *testing.T) {
	result, cause := reconcile.Result{RequeueAfter: time.Hour}, errors.New(strings.Repeat("long ", 1000))
	p := &page{}
	wrapped := controllerruntime.WrapReconciler(reconcile.TypedFunc[int](func(_ context.Context,
		n int) (reconcile.Result, error) {
		switch n {
		case 1:
			return result, nil
		case 2:
			panic(cause)
		case 3:
			return reconcile.Result{}, reconcile.TerminalError(cause)
		}
		return reconcile.Result{}, cause
	}), p)
	q := wrapped.With(priorityqueue.Config[int]{Name: "bounded"})("",
		clientgo.DefaultTypedControllerRateLimiter[int]())
	defer q.ShutDown()
	ctx := t.Context()
	if got, err := wrapped.Reconcile(ctx, 1); got != result || err != nil {
		t.Errorf("Reconcile() = %+v, %v", got, err)
	}
	func() {
		defer func() {
			if v := recover(); v != any(cause) {
				t.Errorf("the panic has become %v", v)
			}
		}()
		_, _ = wrapped.Reconcile(ctx, 2)
	}()
	if _, err := wrapped.Reconcile(ctx, 3); !errors.Is(err, reconcile.TerminalError(nil)) {
		t.Errorf("Reconcile() = %v", err)
	}
	const failing = 10_050
	for n := range failing {
		q.AddAfter(10+n, time.Hour)
		if _, err := wrapped.Reconcile(ctx, 10+n); err != cause {
			t.Fatal(err)
		}
	}
	st := p.pool.Stats()
	if st.Handled != failing+3 || st.Failed != failing+2 || st.Panicked != 1 || st.GivenUp != 1 ||
		st.Requeued != 1 {
		t.Errorf("%+v", st)
	}
	listed := slices.Collect(p.pool.Keys(worker.KeyFailing))
	if len(listed) != 10_000 || st.Failing != failing+1 || len(listed[0].Failing.Err) != 512 {
		t.Errorf("%d failing keys of %d are listed, with %d bytes of the error", len(listed), st.Failing,
			len(listed[0].Failing.Err))
	}
}

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
