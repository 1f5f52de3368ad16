package kubetest_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

var widgets = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func widget(fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(widgets)
	u.SetNamespace("d")
	u.SetName("w")
	return u
}

// Finalizers and conditions of two owners, fields that an Update has set, and those that a user has added.
func TestApplyKeepsWhatOthersHave(t *testing.T) {
	others(t, func(ctx context.Context, _ *kubetest.Cluster, c client.Client) {
		apply := func(owner, finalizer string, opts ...client.ApplyOption) error {
			o := widget(map[string]any{"spec": map[string]any{"size": int64(1)}})
			o.SetFinalizers([]string{finalizer})
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), append(opts, client.FieldOwner(owner))...)
		}
		now := widget(nil)
		must := func(err error) {
			t.Helper()
			if err == nil {
				err = c.Get(ctx, client.ObjectKeyFromObject(now), now)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		must(apply("one", "example.com/one"))
		must(apply("two", "example.com/two"))
		if f := now.GetFinalizers(); !slices.Equal(f, []string{"example.com/one", "example.com/two"}) {
			t.Errorf("the finalizers are %v", f)
		}
		if owners := now.GetManagedFields(); len(owners) != 2 {
			t.Errorf("managed fields: %v", owners)
		}
		version := now.GetResourceVersion()
		if must(apply("two", "example.com/two")); now.GetResourceVersion() != version {
			t.Error("the same once more makes a new version")
		}
		_ = unstructured.SetNestedField(now.Object, int64(2), "spec", "size")
		_ = unstructured.SetNestedField(now.Object, "red", "spec", "color")
		must(c.Update(ctx, now, client.FieldOwner("user")))
		if err := apply("one", "example.com/one"); !apierrors.IsConflict(err) {
			t.Errorf("a field that a user has set: %v", err)
		}
		must(apply("one", "example.com/one", client.ForceOwnership))
		spec := now.Object["spec"].(map[string]any)
		if spec["size"] != int64(1) || spec["color"] != "red" {
			t.Errorf("the spec is %v", spec)
		}
		for _, kind := range []string{"Ready", "Synced"} {
			o := widget(map[string]any{"status": map[string]any{"conditions": []any{
				map[string]any{"type": kind, "status": "True"}}}})
			//lint:ignore SA1019 The way of all released versions.
			must(c.Status().Patch(ctx, o, client.Apply, client.FieldOwner(kind)))
		}
		if conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions"); len(conditions) != 2 {
			t.Errorf("the conditions are %v: %v", conditions, now.Object)
		}
	}, nil)
}

// Apply writes the answer into the configuration.
func TestAnswerOfApply(t *testing.T) {
	others(t, func(ctx context.Context, _ *kubetest.Cluster, c client.Client) {
		o := corev1apply.ConfigMap("a", "d").WithData(map[string]string{"x": "1"})
		if err := c.Apply(ctx, o, client.FieldOwner("one")); err != nil || o.ResourceVersion == nil || o.UID == nil {
			t.Errorf("%v, %+v", err, o.ObjectMetaApplyConfiguration)
		}
		meta := o.ObjectMetaApplyConfiguration
		u := widget(map[string]any{"spec": map[string]any{"size": int64(1)}})
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("one"))
		if err != nil || u.GetResourceVersion() == "" || u.GetGeneration() != 1 || meta.Generation != nil {
			t.Errorf("%v, %v, %v", err, u.Object, meta)
		}
	}, nil)
}

// Later versions of controller-runtime also have an Apply of the status.
func TestApplyOfTheStatus(t *testing.T) {
	if _, found := reflect.TypeFor[client.SubResourceWriter]().MethodByName("Apply"); !found {
		t.Skip("this version of controller-runtime has no such method")
	}
	others(t, func(ctx context.Context, _ *kubetest.Cluster, c client.Client) {
		apply := reflect.ValueOf(c.Status()).MethodByName("Apply")
		call := func(status any) error {
			o := client.ApplyConfigurationFromUnstructured(widget(map[string]any{"status": status}))
			err, _ := apply.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(o),
				reflect.ValueOf(client.FieldOwner("one"))})[0].Interface().(error)
			return err
		}
		now, other := widget(map[string]any{"spec": map[string]any{"size": int64(1)}}), widget(map[string]any{})
		other.SetName("other")
		if err := c.Create(ctx, other); err != nil {
			t.Fatal(err)
		}
		if err := call(map[string]any{}); !apierrors.IsNotFound(err) {
			t.Errorf("the status of an object that does not exist: %v", err)
		}
		if err := c.Create(ctx, now); err != nil {
			t.Fatal(err)
		}
		if err := call(map[string]any{"phase": "new"}); err != nil {
			t.Fatal(err)
		}
		err := c.Get(ctx, client.ObjectKeyFromObject(now), now)
		if phase, _, _ := unstructured.NestedString(now.Object, "status", "phase"); err != nil || phase != "new" {
			t.Errorf("%v, %v", err, now.Object)
		}
	}, nil)
}

// What an API server refuses.
func TestRefused(t *testing.T) {
	others(t, func(ctx context.Context, _ *kubetest.Cluster, c client.Client) {
		yes := true
		owner := func(uid types.UID) metav1.OwnerReference {
			return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: uid, Controller: &yes}
		}
		refused := func(what string, err error, is func(error) bool) {
			t.Helper()
			if !is(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		o := &corev1.ConfigMap{ObjectMeta: meta("a")}
		o.OwnerReferences = []metav1.OwnerReference{owner("1"), owner("2")}
		refused("two controllers", c.Create(ctx, o), apierrors.IsInvalid)
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p"}}
		refused("no UID", c.Create(ctx, o), apierrors.IsInvalid)
		o.OwnerReferences = nil
		if err := c.Create(ctx, o); err != nil || o.Generation != 0 || o.Kind != "" {
			t.Errorf("%v, %+v", err, o)
		}
		w := widget(map[string]any{})
		if err := c.Create(ctx, w); err != nil || w.GetGeneration() != 1 {
			t.Errorf("%v, %v", err, w.Object)
		}
		w.SetResourceVersion("")
		refused("an update without a version", c.Update(ctx, w), apierrors.IsInvalid)
		o.Data = map[string]string{"x": "1"}
		version := o.ResourceVersion
		if err := c.Update(ctx, o, client.DryRunAll); err != nil {
			t.Error(err)
		}
		if err := c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace("d"), client.DryRunAll); err != nil {
			t.Error(err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.ResourceVersion != version ||
			o.Data != nil {
			t.Errorf("after dry runs: %v, %+v", err, o)
		}
		var list corev1.ConfigMapList
		if err := c.List(ctx, &list, client.Limit(1)); err != nil || len(list.Items) != 1 || list.Continue == "" ||
			*list.RemainingItemCount != 1 {
			t.Errorf("the first page: %v, %+v", err, list.ListMeta)
		}
		if err := c.List(ctx, &list, client.Limit(1), client.Continue(list.Continue)); err != nil ||
			len(list.Items) != 1 || list.Continue != "" || list.Items[0].Name == "a" {
			t.Errorf("the second page: %v, %+v", err, list)
		}
	}, nil)
}

// A scenario sets the defaults that an API server sets.
func TestDefault(t *testing.T) {
	writes := 0
	scenario := func(right bool) func(s *kubetest.Scenario) {
		return func(s *kubetest.Scenario) {
			cluster := kubetest.NewCluster(s, scheme.Scheme)
			cluster.Create(replicaSet(1))
			cluster.Default = func(o client.Object) {
				_ = cluster.Others().Get(t.Context(), client.ObjectKeyFromObject(o), &corev1.ConfigMap{}) // It may read.
				if pod, ok := o.(*corev1.Pod); ok && pod.Spec.RestartPolicy == "" {
					pod.Spec.RestartPolicy = "Always"
				}
			}
			cluster.OnChange = func(_, _ client.Object) error { writes++; return nil }
			cluster.Start(func(m *kubetest.Manager) error {
				r := func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
					want := &corev1.Pod{ObjectMeta: meta("web-0")}
					if right {
						want.Spec.RestartPolicy = "Always"
					}
					var pod corev1.Pod
					err := m.GetClient().Get(ctx, client.ObjectKeyFromObject(want), &pod)
					if apierrors.IsNotFound(err) {
						return reconcile.Result{}, client.IgnoreAlreadyExists(m.GetClient().Create(ctx, want))
					}
					if err == nil && pod.Spec.RestartPolicy != want.Spec.RestartPolicy {
						err = m.GetClient().Delete(ctx, &pod)
					}
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				return builder.ControllerManagedBy(m).Named("defaults").For(&corev1.ConfigMap{}).
					Watches(&corev1.Pod{}, toWeb).Watches(replicaSet(0), toWeb).Complete(reconcile.Func(r))
			})
		}
	}
	t.Setenv("HANDLERTEST_RUNS", "20")
	kubetest.Converges(t, scenario(true))
	wantReport(t, kubetest.Find(t, scenario(false)), "it never comes to rest", "again and again")
}
