package kubeworld_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keyedqueue/workqueue/examples/kubeworld"
)

// An object with a finalizer stays until the last one is removed, by an update or a patch. A patch that changes nothing makes no new version, and one
// that changes the spec counts the generation.
func TestFinalizersAndPatches(t *testing.T) {
	cluster := kubeworld.New(scheme.Scheme, func(string, ...any) {})
	client := &fake.Clientset{}
	cluster.Attach(&client.Fake, nil)
	pods, ctx := client.CoreV1().Pods("default"), context.Background()
	must := func(pod *corev1.Pod, err error) *corev1.Pod {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	patch := func(text string) *corev1.Pod {
		t.Helper()
		return must(pods.Patch(ctx, "web", types.MergePatchType, []byte(text), metav1.PatchOptions{}))
	}
	created := must(pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Finalizers: []string{"a/b", "c/d"}}}, metav1.CreateOptions{}))
	if again := patch(`{"metadata":{"finalizers":["a/b","c/d"]}}`); again.ResourceVersion != created.ResourceVersion {
		t.Errorf("a patch that changes nothing makes version %s of %s", again.ResourceVersion, created.ResourceVersion)
	}
	if changed := patch(`{"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`); changed.Generation != 2 || changed.Status.Phase != "" {
		t.Errorf("a patch of the spec makes generation %d, and the phase %q", changed.Generation, changed.Status.Phase)
	}
	if err := pods.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := must(pods.Get(ctx, "web", metav1.GetOptions{}))
	if pod.DeletionTimestamp == nil {
		t.Error("it is deleted, and has no deletionTimestamp")
	}
	pod.Finalizers = pod.Finalizers[:1]
	must(pods.Update(ctx, pod, metav1.UpdateOptions{}))
	must(pods.Get(ctx, "web", metav1.GetOptions{}))
	patch(`{"metadata":{"finalizers":null}}`)
	if _, err := pods.Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without finalizers it is not gone: %v", err)
	}
}
