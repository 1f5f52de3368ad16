package controllerruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// page keeps what a Reconciler shows.
type page struct {
	name  string
	queue workqueue.Inspector
	pool  worker.Inspector
}

func (p *page) InspectQueue(name string, q workqueue.Inspector) {
	if p != nil {
		p.name, p.queue = name, q
	}
}

func (p *page) InspectPool(_ string, i worker.Inspector) {
	if p != nil {
		p.pool = i
	}
}

// The page has Snapshots of running and failing requests with their errors. The controller sees nothing of
// it.
func TestReconcilerInManager(t *testing.T) {
	p := &page{}
	onWrapped(t, controllerruntime.Options[reconcile.Request]{Page: p},
		func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
			began := time.Now()
			fails := errors.New("not yet")
			s.reconcile = func(_ context.Context, name string) (reconcile.Result, error) {
				time.Sleep(time.Second)
				if name == "panics" {
					panic("bang")
				}
				return reconcile.Result{}, fails
			}
			s.create(false, "fails")
			synctest.Wait()
			got := p.pool.Snapshot(9)
			if len(got.Running) != 1 || got.Running[0].Key != request("fails") || got.Running[0].Attempt != 1 ||
				!got.Running[0].Started.Equal(began) || got.Stats.Busy != 1 {
				t.Errorf("while it runs: %+v", got)
			}
			time.Sleep(3 * time.Second) // It has failed at 1 s, runs again from 2 s, and fails at 3 s.
			synctest.Wait()
			want := worker.FailedKey[any]{Key: request("fails"), Attempt: 2, Since: began.Add(time.Second),
				Err: "not yet", NextTry: began.Add(5 * time.Second)}
			if got = p.pool.Snapshot(9); len(got.Failing) != 1 || got.Failing[0] != want || got.Stats.Failed != 2 ||
				got.Stats.Failing != 1 || len(got.Running) != 0 {
				t.Errorf("after two failures: %+v, want %+v", got, want)
			}
			fails = nil
			s.create(false, "panics")
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if got = p.pool.Snapshot(9); len(got.Failing) != 1 || got.Failing[0].Err != "panic: bang" ||
				s.queue.NumRequeues(request("panics")) == 0 {
				t.Errorf("after a success and a panic: %+v", got)
			}
			if p.name != "test" || p.queue.Queue != any(s.queue) || got.Stats.Name != "test" || got.Stats.Ended {
				t.Errorf("the page has the queue %q, %v", p.name, p.queue.Queue)
			}
			p.queue.Remove(request("panics"))
			if got = p.pool.Snapshot(9); len(got.Failing) != 0 || got.Stats.Failing != 0 {
				t.Errorf("a failure of a request that was removed from the queue is kept: %+v", got)
			}
		})
	if !p.pool.Snapshot(9).Stats.Ended {
		t.Error("the page does not see the end")
	}
}

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
	s := p.pool.Snapshot(failing)
	if st := s.Stats; st.Handled != failing+3 || st.Failed != failing+2 || st.Panicked != 1 || st.GivenUp != 1 ||
		st.Requeued != 1 {
		t.Errorf("%+v", st)
	}
	if len(s.Failing) != 10_000 || s.Stats.Failing != failing+1 || len(s.Failing[0].Err) != 512 {
		t.Errorf("%d failing keys of %d are listed, with %d bytes of the error", len(s.Failing), s.Stats.Failing,
			len(s.Failing[0].Err))
	}
	if s := p.pool.Snapshot(3); len(s.Failing) != 3 {
		t.Errorf("%d failures of a limit of three", len(s.Failing))
	}
}
