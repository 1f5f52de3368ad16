package kubetest_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// An object with a finalizer stays until the last one is removed, by an update or a patch. A patch that
// changes nothing makes no new version, and a change of the spec counts the generation.
func TestClientset(t *testing.T) {
	others(t, func(ctx context.Context, cluster *kubetest.Cluster, _ client.Client) {
		clientset := &fake.Clientset{}
		cluster.Attach(&clientset.Fake, nil)
		pods := clientset.CoreV1().Pods("default")
		must := func(pod *corev1.Pod, err error) *corev1.Pod {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
			return pod
		}
		patch := func(text string) *corev1.Pod {
			t.Helper()
			return must(pods.Patch(ctx, "web", types.MergePatchType, []byte(text), metav1.PatchOptions{}))
		}
		created := must(pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web",
			Finalizers: []string{"a/b", "c/d"}},
			Status: corev1.PodStatus{Phase: "Pending"}}, metav1.CreateOptions{}))
		if created.Status.Phase != "Pending" {
			t.Errorf("somebody creates it with the status %+v", created.Status)
		}
		if again := patch(
			`{"metadata":{"finalizers":["a/b","c/d"]}}`); again.ResourceVersion != created.ResourceVersion {
			t.Errorf("a patch that changes nothing makes version %s of %s", again.ResourceVersion,
				created.ResourceVersion)
		}
		changed := patch(`{"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`)
		if changed.Generation != 2 || changed.Status.Phase != "Pending" {
			t.Errorf("a patch of the spec makes generation %d, and the phase %q", changed.Generation,
				changed.Status.Phase)
		}
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=web"})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%+v, %v", list, err)
		}
		if err := pods.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
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
	}, nil)
}
