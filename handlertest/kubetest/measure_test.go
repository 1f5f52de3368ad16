package kubetest

import (
	"maps"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Times are left out of the measure: its value makes it a time, and not its name.
func TestTimesAreNotMeasured(t *testing.T) {
	const now = "2026-11-29T10:00:00Z"
	measured := map[string]any{"runtime": "containerd", "lifetime": int64(3), "uptime": "3h", "time": "never",
		"deletionTimestamp": now}
	content := maps.Clone(measured)
	maps.Copy(content, map[string]any{"lastTransitionTime": now, "creationTimestamp": nil,
		"renewTime": "2026-11-29T10:00:00.000000Z", "kubectl.kubernetes.io/restartedAt": now, "uid": "1",
		"observedGeneration": int64(2)})
	withoutTimes(content)
	measured["deletionTimestamp"] = "set"
	if !maps.Equal(content, measured) {
		t.Errorf("%v is measured, want %v", content, measured)
	}
}

// Children whose names the cluster makes are compared without these names, which sort otherwise in other runs.
func TestGeneratedNamesAreNotMeasured(t *testing.T) {
	measureOf := func(names ...string) any {
		pods := make(map[types.NamespacedName]client.Object)
		for i, name := range names {
			pod := &corev1.Pod{}
			pod.Name, pod.GenerateName, pod.Labels = name, "x-", map[string]string{"index": string(rune('0' + i))}
			pods[types.NamespacedName{Name: name}] = pod
		}
		kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
		c := &Cluster{truth: map[schema.GroupVersionKind]map[types.NamespacedName]client.Object{kind: pods}}
		return c.measure()
	}
	if a, b := measureOf("x-5", "x-6"), measureOf("x-9", "x-10"); !reflect.DeepEqual(a, b) {
		t.Errorf("%v, and then %v", a, b)
	}
}
