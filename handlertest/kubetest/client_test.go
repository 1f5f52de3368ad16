package kubetest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// others runs a test with the client of others, at once, and what must hold a second later.
func others(t *testing.T, now func(ctx context.Context, cluster *kubetest.Cluster, c client.Client),
	later func(client.Client)) {
	t.Helper()
	t.Setenv("HANDLERTEST", "slow:none#1=3ms")
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d",
			Name: "keeps-it-busy"}})
		s.At(time.Millisecond, func() { now(context.Background(), cluster, cluster.Others()) })
		if later != nil {
			s.At(time.Second, func() { later(cluster.Others()) })
		}
		cluster.Start(func(m *kubetest.Manager) error {
			return builder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(reconcile.Func(nothing))
		})
	})
}

func nothing(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}

func meta(name string, finalizers ...string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "d", Name: name, Finalizers: finalizers}
}

func TestVersionsAndStatus(t *testing.T) {
	others(t, func(ctx context.Context, _ *kubetest.Cluster, c client.Client) {
		pod := &corev1.Pod{ObjectMeta: meta("a"), Status: corev1.PodStatus{Phase: "Running"}}
		want := func(what string, err error, ok bool) {
			if err != nil || !ok {
				t.Errorf("%s: %v, %+v", what, err, pod)
			}
		}
		want("create", c.Create(ctx, pod), pod.Status.Phase == "" && len(pod.UID) == 36 && pod.Generation == 1 &&
			!pod.CreationTimestamp.IsZero())
		if err := c.Create(ctx, &corev1.Pod{ObjectMeta: meta("a")}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("created again: %v", err)
		}
		stale := pod.DeepCopy()
		pod.Status.Phase, pod.Spec.NodeName = "Running", "n"
		want("status", c.Status().Update(ctx, pod), pod.Status.Phase == "Running" && pod.Spec.NodeName == "" &&
			pod.Generation == 1)
		pod.Status.Phase, pod.Spec.NodeName = "Failed", "n"
		want("update", c.Update(ctx, pod), pod.Status.Phase == "Running" && pod.Spec.NodeName == "n" &&
			pod.Generation == 2)
		version := pod.ResourceVersion
		want("no change", c.Update(ctx, pod), pod.ResourceVersion == version)
		if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
			t.Errorf("an update of an old version: %v", err)
		}
		if err := c.Delete(ctx, pod,
			client.Preconditions{ResourceVersion: &stale.ResourceVersion}); !apierrors.IsConflict(err) {
			t.Errorf("a delete of an old version: %v", err)
		}
		generated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", GenerateName: "x-"}}
		if err := c.Create(ctx, generated); err != nil || len(generated.Name) < 3 {
			t.Errorf("a generated name is %q, %v", generated.Name, err)
		}
		var u unstructured.Unstructured
		u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), &u); err != nil ||
			u.Object["spec"].(map[string]any)["nodeName"] != "n" {
			t.Errorf("unstructured: %v, %v", u.Object, err)
		}
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "PodList"})
		if err := c.List(ctx, &list); err != nil || len(list.Items) != 2 || list.Items[0].Name != "a" {
			t.Errorf("metadata: %+v, %v", list.Items, err)
		}
		if err := c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("d")); err != nil {
			t.Error(err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
			t.Errorf("after DeleteAllOf: %v", err)
		}
	}, nil)
}

func TestFinalizers(t *testing.T) {
	others(t, func(ctx context.Context, _ *kubetest.Cluster, c client.Client) {
		pod := &corev1.Pod{ObjectMeta: meta("a", "x/1", "x/2")}
		if err := errors.Join(c.Create(ctx, pod), c.Delete(ctx, pod), c.Delete(ctx, pod),
			c.Get(ctx, client.ObjectKeyFromObject(pod), pod)); err != nil || pod.DeletionTimestamp == nil {
			t.Fatalf("%v, %+v", err, pod)
		}
		more := pod.DeepCopy()
		if more.Finalizers = append(more.Finalizers, "x/3"); !apierrors.IsInvalid(c.Update(ctx, more)) {
			t.Error("a finalizer was added to an object that is being deleted")
		}
		before := client.MergeFrom(pod.DeepCopy())
		pod.Finalizers = nil
		if err := c.Patch(ctx, pod, before); err != nil {
			t.Error(err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
			t.Errorf("without finalizers it is not gone: %v", err)
		}
	}, nil)
}

func TestPatches(t *testing.T) {
	others(t, func(ctx context.Context, _ *kubetest.Cluster, c client.Client) {
		o := &corev1.ConfigMap{ObjectMeta: meta("a"), Data: map[string]string{"x": "1"}}
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		data := func(what string, err error, want map[string]string) {
			t.Helper()
			if err != nil || !maps.Equal(o.Data, want) {
				t.Errorf("%s: %v, %v, want %v", what, o.Data, err, want)
			}
		}
		raw := func(kind types.PatchType, text string) error {
			return c.Patch(ctx, o, client.RawPatch(kind, []byte(text)))
		}
		data("merge", raw(types.MergePatchType, `{"data":{"y":"2","x":null}}`), map[string]string{"y": "2"})
		data("JSON", raw(types.JSONPatchType,
			`[{"op":"test","path":"/data/y","value":"2"},{"op":"add","path":"/data/z","value":"3"}]`),
			map[string]string{"y": "2", "z": "3"})
		data("strategic", raw(types.StrategicMergePatchType, `{"data":{"z":null}}`), map[string]string{"y": "2"})
		if err := raw(types.JSONPatchType,
			`[{"op":"test","path":"/data/y","value":"9"}]`); !apierrors.IsInvalid(err) {
			t.Errorf("a test of a JSON patch that fails: %v", err)
		}
		stale := o.DeepCopy()
		data("once more", raw(types.MergePatchType, `{"data":{"y":"4"}}`), map[string]string{"y": "4"})
		changed := stale.DeepCopy()
		changed.Data["y"] = "5"
		if err := c.Patch(ctx, changed, client.MergeFromWithOptions(stale,
			client.MergeFromWithOptimisticLock{})); !apierrors.IsConflict(err) {
			t.Errorf("a patch of an old version: %v", err)
		}
		if err := raw(types.JSONPatchType, fmt.Sprintf(`[{"op":"replace","path":"/metadata/resourceVersion","value":%q}]`,
			stale.ResourceVersion)); !apierrors.IsConflict(err) {
			t.Errorf("a patch that says an old version: %v", err)
		}
	}, nil)
}

func TestApply(t *testing.T) {
	others(t, func(ctx context.Context, _ *kubetest.Cluster, c client.Client) {
		o := &corev1.ConfigMap{}
		apply := func(owner string, data map[string]string, opts ...client.PatchOption) error {
			o = &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: meta("a"), Data: data}
			//lint:ignore SA1019 The way of all released versions.
			return c.Patch(ctx, o, client.Apply, append(opts, client.FieldOwner(owner))...)
		}
		want := func(what string, err error, want map[string]string) {
			t.Helper()
			if err != nil || !maps.Equal(o.Data, want) {
				t.Errorf("%s: %v, %v, want %v", what, o.Data, err, want)
			}
		}
		want("create", apply("one", map[string]string{"x": "1", "y": "1"}), map[string]string{"x": "1", "y": "1"})
		version := o.ResourceVersion
		want("the same", apply("one", map[string]string{"x": "1", "y": "1"}), map[string]string{"x": "1", "y": "1"})
		if o.ResourceVersion != version {
			t.Error("applying the same makes a new version")
		}
		want("another owner", apply("two", map[string]string{"z": "2"}),
			map[string]string{"x": "1", "y": "1", "z": "2"})
		want("a field less", apply("one", map[string]string{"x": "1"}), map[string]string{"x": "1", "z": "2"})
		if err := apply("two", map[string]string{"x": "2", "z": "2"}); !apierrors.IsConflict(err) {
			t.Errorf("a field of another owner: %v", err)
		}
		want("by force", apply("two", map[string]string{"x": "2", "z": "2"}, client.ForceOwnership),
			map[string]string{"x": "2", "z": "2"})
		want("no longer its", apply("one", map[string]string{}), map[string]string{"x": "2", "z": "2"})
	}, nil)
}

// A webhook refuses, and counts.
func TestOnChange(t *testing.T) {
	others(t, func(ctx context.Context, cluster *kubetest.Cluster, c client.Client) {
		created := 0
		cluster.OnChange = func(old, now client.Object) error {
			if old == nil {
				created++
			}
			if now != nil && now.GetName() == "bad" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "bad",
					fmt.Errorf("denied by a webhook"))
			}
			return nil
		}
		good, bad := c.Create(ctx, &corev1.Pod{ObjectMeta: meta("good")}),
			c.Create(ctx, &corev1.Pod{ObjectMeta: meta("bad")})
		if good != nil || !apierrors.IsForbidden(bad) || created != 2 {
			t.Errorf("%v, %v, %d creates", good, bad, created)
		}
	}, nil)
}

// A process sees its own writes later, conflicts, and errors as an API server returns them.
func TestClientOfProcess(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "100")
	seen := make(map[string]int)
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(replicaSet(1))
		cluster.Start(func(m *kubetest.Manager) error {
			r := func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
				var set, cached appsv1.ReplicaSet
				err := m.GetAPIReader().Get(ctx, request.NamespacedName, &set)
				if err == nil && set.Status.Replicas == 0 {
					set.Status.Replicas = 1
					if err = m.GetClient().Status().Update(ctx, &set); err == nil {
						if err = m.GetClient().Get(ctx, request.NamespacedName, &cached); cached.Status.Replicas == 0 {
							seen["the cache lags"]++
						}
					}
				}
				for what, is := range map[string]func(error) bool{"timeout": apierrors.IsTimeout,
					"conflict": apierrors.IsConflict} {
					if is(err) {
						seen[what]++
					}
				}
				return reconcile.Result{}, err
			}
			return builder.ControllerManagedBy(m).For(&appsv1.ReplicaSet{}).Complete(reconcile.Func(r))
		})
	})
	for _, what := range []string{"the cache lags", "timeout", "conflict"} {
		if seen[what] == 0 {
			t.Errorf("no call has seen: %s", what)
		}
	}
}

// Lists and deletes of many see only what has the labels that they ask for.
func TestLabels(t *testing.T) {
	others(t, func(ctx context.Context, cluster *kubetest.Cluster, c client.Client) {
		for _, x := range []string{"1", "2"} {
			pod := &corev1.Pod{ObjectMeta: meta("pod-" + x)}
			pod.Labels = map[string]string{"x": x}
			cluster.Create(pod)
		}
		want := func(what string, opts []client.ListOption, names ...string) {
			var list corev1.PodList
			err := c.List(ctx, &list, opts...)
			var found []string
			for _, pod := range list.Items {
				found = append(found, pod.Name)
			}
			if err != nil || !slices.Equal(found, names) {
				t.Errorf("%s: %v, %v, want %v", what, found, err, names)
			}
		}
		want("a label", []client.ListOption{client.MatchingLabels{"x": "1"}}, "pod-1")
		want("another name", []client.ListOption{client.MatchingFieldsSelector{
			Selector: fields.OneTermNotEqualSelector("metadata.name", "pod-1")}}, "pod-2")
		if err := c.DeleteAllOf(ctx, &corev1.Pod{}, client.MatchingLabels{"x": "1"}); err != nil {
			t.Error(err)
		}
		want("all that are left", nil, "pod-2")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		cluster.Create(node)
		if err := c.Get(ctx, client.ObjectKey{Namespace: "d", Name: "n"}, node); err != nil {
			t.Errorf("an object without a namespace: %v", err)
		}
		if err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err == nil {
			t.Error("a ConfigMap is in no namespace")
		}
	}, nil)
}

// Many objects with some writes each are many writes, and no endless ones.
func TestManyObjects(t *testing.T) {
	t.Setenv("HANDLERTEST", "crash#1=1s")
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		for i := range 110 {
			cluster.Create(&corev1.ConfigMap{ObjectMeta: meta(fmt.Sprint("map-", i))})
		}
		cluster.Start(func(m *kubetest.Manager) error {
			return builder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
				func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
					var o corev1.ConfigMap
					err := m.GetAPIReader().Get(ctx, request.NamespacedName, &o)
					for len(o.Annotations) < 10 && err == nil {
						metav1.SetMetaDataAnnotation(&o.ObjectMeta, fmt.Sprint(len(o.Annotations)), "")
						err = m.GetClient().Update(ctx, &o)
					}
					return reconcile.Result{}, err
				}))
		})
	})
}
