package controllerruntime_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
)

// A new generation interrupts a reconciler, a new status does not.
func TestCauseOf(t *testing.T) {
	deployment := func(change func(*appsv1.Deployment)) client.Object {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 2,
			ResourceVersion: "7"}}
		if change != nil {
			d.ResourceVersion = "8"
			change(d)
		}
		return d
	}
	updated := func(change func(*appsv1.Deployment)) controllerruntime.Event[client.Object] {
		return controllerruntime.Event[client.Object]{Type: "Update", Old: deployment(nil), New: deployment(change)}
	}
	configMap := func(version string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
			ResourceVersion: version}}
	}
	custom := &unstructured.Unstructured{Object: map[string]any{"kind": "Widget",
		"metadata": map[string]any{"name": "cog"}}}
	for _, c := range []struct {
		event controllerruntime.Event[client.Object]
		want  workqueue.Cause
	}{
		{controllerruntime.Event[client.Object]{Type: "Create", New: configMap("1")},
			workqueue.Cause{Reason: "Create ConfigMap default/web"}},
		{controllerruntime.Event[client.Object]{Type: "Delete", New: configMap("1")},
			workqueue.Cause{Reason: "Delete ConfigMap default/web"}},
		{controllerruntime.Event[client.Object]{Type: "Generic", New: custom},
			workqueue.Cause{Reason: "Generic Widget cog"}},
		{controllerruntime.Event[client.Object]{Type: "Generic"}, workqueue.Cause{Reason: "Generic"}},
		{controllerruntime.Event[client.Object]{Type: "Update", Old: (*corev1.ConfigMap)(nil), New: configMap("1")},
			workqueue.Cause{Reason: "Update ConfigMap default/web"}},
		{controllerruntime.Event[client.Object]{Type: "Update", Old: configMap("1"), New: configMap("2")},
			workqueue.Cause{Reason: "Update ConfigMap default/web"}},
		{controllerruntime.Event[client.Object]{Type: "Update", Old: configMap("1"), New: configMap("1")},
			workqueue.Cause{Reason: "Update ConfigMap default/web, resync", Quiet: true}},
		{updated(nil), workqueue.Cause{Reason: "Update Deployment default/web, resync", Quiet: true}},
		{updated(func(d *appsv1.Deployment) { d.Status.Replicas = 3 }),
			workqueue.Cause{Reason: "Update Deployment default/web, status", Quiet: true}},
		{updated(func(d *appsv1.Deployment) { d.Finalizers = []string{"x"} }),
			workqueue.Cause{Reason: "Update Deployment default/web, finalizers", Quiet: true}},
		{updated(func(d *appsv1.Deployment) { d.OwnerReferences = []metav1.OwnerReference{{Name: "o", UID: "1"}} }),
			workqueue.Cause{Reason: "Update Deployment default/web, owners"}},
		{updated(func(d *appsv1.Deployment) { d.Generation = 3 }),
			workqueue.Cause{Reason: "Update Deployment default/web, generation 3"}},
		{updated(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }),
			workqueue.Cause{Reason: "Update Deployment default/web, metadata"}},
		{updated(func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }),
			workqueue.Cause{Reason: "Update Deployment default/web, metadata"}},
		{updated(func(d *appsv1.Deployment) {
			d.Generation, d.DeletionTimestamp = 3, &metav1.Time{Time: time.Unix(9, 0)}
		}), workqueue.Cause{Reason: "Update Deployment default/web, being deleted"}},
	} {
		if got := controllerruntime.CauseOf(c.event); got != c.want {
			t.Errorf("%s of %v: %+v, want %+v", c.event.Type, c.event.New, got, c.want)
		}
	}
	if got := controllerruntime.CauseOf(controllerruntime.Event[int]{Type: "Generic",
		New: 3}); got != (workqueue.Cause{Reason: "Generic"}) {
		t.Errorf("of a number: %+v", got)
	}
}

// The adds of controller-runtime's handlers get causes and keep their priorities.
func TestWithCauses(t *testing.T) {
	object := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a",
			ResourceVersion: version}}
	}
	request := requestA
	toItself := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{request} }
	for name, h := range map[string]handler.EventHandler{
		"EnqueueRequestForObject":    &handler.EnqueueRequestForObject{},
		"EnqueueRequestsFromMapFunc": handler.EnqueueRequestsFromMapFunc(toItself),
		"Funcs": handler.Funcs{CreateFunc: handler.EnqueueRequestsFromMapFunc(
			toItself).Create, UpdateFunc: (&handler.EnqueueRequestForObject{}).Update},
		"Funcs that add":              adds(func(q requestQueue) { q.Add(requestA) }),
		"Funcs that add after":        adds(func(q requestQueue) { q.AddAfter(requestA, time.Second) }),
		"Funcs that add rate limited": adds(func(q requestQueue) { q.AddRateLimited(requestA) }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := controllerruntime.WithCauses(h, nil)
				q := controllerruntime.NewQueue("",
					clientgo.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second,
						time.Minute)).(*controllerruntime.Queue[reconcile.Request])
				defer q.ShutDown()
				want := func(priority int, causes string) {
					t.Helper()
					time.Sleep(time.Minute)
					synctest.Wait()
					if k, ok := q.SnapshotKey(request); !ok || k.Priority != priority ||
						q.Causes(request).String() != causes {
						t.Errorf("priority %d because of %q, want %d, %q", k.Priority, q.Causes(request), priority, causes)
					}
				}
				h.Create(t.Context(), event.CreateEvent{Object: object("1"), IsInInitialList: true}, q)
				want(handler.LowPriority, "Create ConfigMap ns/a")
				h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("1"), ObjectNew: object("1")}, q)
				want(handler.LowPriority, "Create ConfigMap ns/a; Update ConfigMap ns/a, resync")

				// A worker holds it.
				if _, shutdown := q.Get(); shutdown {
					t.Fatal("shut down")
				}
				added := q.AddedAgain(request)
				h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("1"), ObjectNew: object("1")}, q)
				time.Sleep(time.Minute)
				if isClosed(added) {
					t.Error("a resync interrupts")
				}
				h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("1"), ObjectNew: object("2")}, q)
				time.Sleep(time.Minute)
				if !isClosed(added) {
					t.Error("a change does not interrupt")
				}
				q.Done(request)
				want(0, "Update ConfigMap ns/a, resync; Update ConfigMap ns/a")
			})
		})
	}
}

// adds returns an event handler that adds requestA in some way.
func adds(add func(q requestQueue)) handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q requestQueue) { add(q) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q requestQueue) { add(q) },
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A delete and a generic event also have causes, and the outermost decide has the last word. Another queue is
// left alone.
func TestWithCausesDecides(t *testing.T) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	inner := controllerruntime.WithCauses(&handler.EnqueueRequestForObject{}, nil)
	h := controllerruntime.WithCauses(inner, func(e controllerruntime.Event[client.Object]) workqueue.Cause {
		cause := controllerruntime.CauseOf(e)
		cause.Reason += "!"
		return cause
	})
	q := controllerruntime.NewQueue("", nil).(*controllerruntime.Queue[reconcile.Request])
	defer q.ShutDown()
	h.Delete(t.Context(), event.DeleteEvent{Object: object}, q)
	h.Generic(t.Context(), event.GenericEvent{Object: object}, q)
	if got := q.Causes(requestA).String(); got != "Delete ConfigMap ns/a!; Generic ConfigMap ns/a!" {
		t.Errorf("because of %q", got)
	}
	other := clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer other.ShutDown()
	h.Create(t.Context(), event.CreateEvent{Object: object}, other)
	if other.Len() != 1 {
		t.Error("another queue did not get the key")
	}
}
