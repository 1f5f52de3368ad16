package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/worker"
)

// add has the handler see an update of a ConfigMap.
func (s *scene) add(name string) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	s.handler.Update(context.Background(), event.UpdateEvent{ObjectOld: object, ObjectNew: object}, s.queue)
}

// A request on hold comes when it is released or at its limit, and not before, even if it is added. No worker
// waits. When the manager stops, no request is held any more.
func TestHoldInManager(t *testing.T) {
	p := &page{}
	onWrapped(t, controllerruntime.Options[reconcile.Request]{Page: p},
		func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
			var calls atomic.Int32
			releases := make(chan func(), 3)
			s.reconcile = func(ctx context.Context, name string) (reconcile.Result, error) {
				if name != "a" {
					return reconcile.Result{}, nil
				}
				call := worker.CallOf(ctx)
				switch calls.Add(1) {
				case 1:
					return reconcile.Result{}, errors.New("not yet")
				case 2:
					releases <- call.Hold("it is ready", time.Hour)
					return reconcile.Result{}, fmt.Errorf("a: %w", worker.RequeueAfter(0))
				case 3:
					call.Hold("its limit", 10*time.Second)
					return reconcile.Result{}, worker.RequeueAfter(0)
				}
				call.Hold("the end", time.Hour)
				return reconcile.Result{}, nil
			}
			s.create(false, "a") // It fails, is retried after a second, and is held.
			time.Sleep(5 * time.Second)
			s.add("a")
			s.create(false, "b")
			s.want("a@0s", "a@1s", "b@5s")
			if st := p.pool.Stats(); st.OnHold != 1 || st.Failed != 1 || st.Busy != 0 ||
				s.queue.NumRequeues(requestA) != 0 {
				t.Errorf("%+v, %d requeues", st, s.queue.NumRequeues(requestA))
			}
			if k := p.pool.SnapshotKey(requestA); k.OnHold == nil || k.OnHold.Reason != "it is ready" {
				t.Errorf("%+v", k)
			}
			time.Sleep(5 * time.Second)
			(<-releases)()
			s.want("a@10s")
			time.Sleep(time.Minute)
			s.want("a@20s") // The limit. Then it is held forever.
			if st := p.pool.Stats(); st.OnHold != 1 || st.HoldsToLimit != 1 || s.queue.NumRequeues(requestA) != 0 {
				t.Errorf("%+v, %d requeues", st, s.queue.NumRequeues(requestA))
			}
		})
	if st := p.pool.Stats(); st.OnHold != 0 || !st.Ended {
		t.Errorf("%+v", st)
	}
}

// No shutdown waits for the end of a hold.
func TestShutDownsEndHolds(t *testing.T) {
	for name, shutDown := range map[string]func(*controllerruntime.Queue[int]) error{
		"ShutDown":          func(q *controllerruntime.Queue[int]) error { q.ShutDown(); return nil },
		"ShutDownWithDrain": func(q *controllerruntime.Queue[int]) error { q.ShutDownWithDrain(); return nil },
		"ShutDownContext": func(q *controllerruntime.Queue[int]) error {
			return q.ShutDownContext(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := controllerruntime.WrapReconciler(reconcile.TypedFunc[int](func(ctx context.Context,
					_ int) (reconcile.Result, error) {
					worker.CallOf(ctx).Hold("for long", time.Hour)
					return reconcile.Result{}, nil
				}), nil)
				q := r.NewQueue("", nil).(*controllerruntime.Queue[int])
				q.Add(1)
				key, _ := q.Get()
				if _, err := r.Reconcile(t.Context(), key); err != nil {
					t.Error(err)
				}
				q.Done(key)
				if st := q.Stats(); st.OnHold != 1 {
					t.Errorf("%+v", st)
				}
				began := time.Now()
				if err := shutDown(q); err != nil || time.Since(began) != 0 || q.Stats().OnHold != 0 {
					t.Errorf("%v, after %v", err, time.Since(began))
				}
			})
		})
	}
}
