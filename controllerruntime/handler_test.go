package controllerruntime_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
)

// A new generation interrupts a reconciler, a new status does not.
func TestCauseOf(t *testing.T) {
	deployment := func(change func(*appsv1.Deployment)) client.Object {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 2, ResourceVersion: "7"}}
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
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", ResourceVersion: version}}
	}
	custom := &unstructured.Unstructured{Object: map[string]any{"kind": "Widget", "metadata": map[string]any{"name": "cog"}}}
	for _, c := range []struct {
		event controllerruntime.Event[client.Object]
		want  workqueue.Cause
	}{
		{controllerruntime.Event[client.Object]{Type: "Create", New: configMap("1")}, workqueue.Cause{Reason: "Create ConfigMap default/web"}},
		{controllerruntime.Event[client.Object]{Type: "Delete", New: configMap("1")}, workqueue.Cause{Reason: "Delete ConfigMap default/web"}},
		{controllerruntime.Event[client.Object]{Type: "Generic", New: custom}, workqueue.Cause{Reason: "Generic Widget cog"}},
		{controllerruntime.Event[client.Object]{Type: "Generic"}, workqueue.Cause{Reason: "Generic"}},
		{controllerruntime.Event[client.Object]{Type: "Update", Old: (*corev1.ConfigMap)(nil), New: configMap("1")}, workqueue.Cause{Reason: "Update ConfigMap default/web"}},
		{controllerruntime.Event[client.Object]{Type: "Update", Old: configMap("1"), New: configMap("2")}, workqueue.Cause{Reason: "Update ConfigMap default/web"}},
		{controllerruntime.Event[client.Object]{Type: "Update", Old: configMap("1"), New: configMap("1")}, workqueue.Cause{Reason: "Update ConfigMap default/web, resync", Quiet: true}},
		{updated(nil), workqueue.Cause{Reason: "Update Deployment default/web, resync", Quiet: true}},
		{updated(func(d *appsv1.Deployment) { d.Status.Replicas = 3 }), workqueue.Cause{Reason: "Update Deployment default/web, status", Quiet: true}},
		{updated(func(d *appsv1.Deployment) { d.Finalizers = []string{"x"} }), workqueue.Cause{Reason: "Update Deployment default/web, status", Quiet: true}},
		{updated(func(d *appsv1.Deployment) { d.Generation = 3 }), workqueue.Cause{Reason: "Update Deployment default/web, generation 3"}},
		{updated(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }), workqueue.Cause{Reason: "Update Deployment default/web, metadata"}},
		{updated(func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }), workqueue.Cause{Reason: "Update Deployment default/web, metadata"}},
		{updated(func(d *appsv1.Deployment) {
			d.Generation, d.DeletionTimestamp = 3, &metav1.Time{Time: time.Unix(9, 0)}
		}), workqueue.Cause{Reason: "Update Deployment default/web, being deleted"}},
	} {
		if got := controllerruntime.CauseOf(c.event); got != c.want {
			t.Errorf("%s of %v: %+v, want %+v", c.event.Type, c.event.New, got, c.want)
		}
	}
	if got := controllerruntime.CauseOf(controllerruntime.Event[int]{Type: "Generic", New: 3}); got != (workqueue.Cause{Reason: "Generic"}) {
		t.Errorf("of a number: %+v", got)
	}
}
