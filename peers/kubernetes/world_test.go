package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// known are the lines in which the cluster of handlertest/kubetest differs from an API server, with the reasons.
// They stand in docs/testing-handlers.md.
var known = map[string]string{
	"an immutable field": "nothing but metadata is validated",
	"scale":              "there is no such subresource",
}

// The cluster of handlertest/kubetest does what an API server does. The same calls go to a kube-apiserver with a
// kube-controller-manager, to that cluster, and to the fake client of controller-runtime. It takes the programs
// that an earlier command has built: see .ci/run.
func TestWorld(t *testing.T) {
	if os.Getenv("WORKQUEUE_WORLD") == "" {
		t.Skip("it needs the servers: set WORKQUEUE_WORLD to the variant that is built")
	}
	variants, err := variantsNamed(os.Getenv("WORKQUEUE_WORLD"))
	if err != nil {
		t.Fatal(err)
	}
	want := onServer(t, variants[0])
	got, faked := onCluster(t), onFake(t)
	differ := func(got []string) (names []string) {
		for i, line := range want {
			if i >= len(got) || got[i] != line {
				name, _, _ := strings.Cut(line, ": ")
				names = append(names, name)
			}
		}
		return names
	}
	for i, line := range want {
		name, _, _ := strings.Cut(line, ": ")
		if same, reason := i < len(got) && got[i] == line, known[name]; same == (reason != "") {
			t.Errorf("known to differ: %q\n\tserver:  %s\n\tcluster: %s", reason, line, slices.Concat(got, make([]string, len(want)))[i])
		}
	}
	t.Logf("of %d lines the cluster differs in %d, and client/fake in %d: %v", len(want), len(differ(got)), len(differ(faked)),
		differ(faked))
}

func onServer(t *testing.T, v variant) []string {
	ctx := t.Context()
	c, err := startCluster(ctx, v, filepath.Join(t.TempDir(), "world"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	live, err := client.New(c.config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	create := func(o client.Object) {
		if err := live.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	crd := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(widgetDefinition), crd); err != nil {
		t.Fatal(err)
	}
	create(crd)
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
	for since := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if err := live.List(ctx, widgetList(), client.InNamespace("d")); err == nil {
			break
		} else if time.Since(since) > time.Minute {
			t.Fatal(err)
		}
	}
	shown, err := cache.New(c.config, cache.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = shown.Start(ctx) }()
	return calls(ctx, live, shown, func(done func() bool) {
		for since := time.Now(); !done() && time.Since(since) < 90*time.Second; {
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// past is a client that reads past the cache.
type past struct {
	client.Client
	client.Reader
}

func (p past) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return p.Reader.Get(ctx, key, o, opts...)
}

func (p past) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return p.Reader.List(ctx, l, opts...)
}

func onCluster(t *testing.T) (lines []string) {
	t.Setenv("HANDLERTEST", "slow:none#1=3ms") // Nothing is disturbed.
	report := kubetest.Find(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
		s.Measure = func() any { return nil }
		cluster.Start(func(m *kubetest.Manager) error {
			r := func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				if lines == nil {
					lines = calls(ctx, past{m.GetClient(), m.GetAPIReader()}, m.GetCache(),
						func(func() bool) { time.Sleep(10 * time.Second) })
				}
				return reconcile.Result{}, nil
			}
			return builder.ControllerManagedBy(m).For(&corev1.Namespace{}).Complete(reconcile.Func(r))
		})
	})
	if report != "" {
		t.Log(report)
	}
	return lines
}

func onFake(t *testing.T) []string {
	return calls(t.Context(), fake.NewClientBuilder().WithScheme(scheme.Scheme).WithReturnManagedFields().
		WithStatusSubresource(&corev1.Pod{}, &appsv1.Deployment{}, widget("x", nil)).Build(), nil, func(func() bool) {})
}

const widgetDefinition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "widgets.example.com"},
	"spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
		"versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
			"schema": {"openAPIV3Schema": {"type": "object", "properties": {
				"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
					"conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
						"items": {"type": "object", "required": ["type"], "x-kubernetes-preserve-unknown-fields": true,
							"properties": {"type": {"type": "string"}}}}}}}}}}]}}`

var widgets = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(widgets)
	u.SetNamespace("d")
	u.SetName(name)
	if spec != nil {
		u.Object["spec"] = spec
	}
	return u
}

func widgetList() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(widgets.GroupVersion().WithKind("WidgetList"))
	return l
}

// script writes what calls return, a line for each.
type script struct {
	ctx   context.Context
	c     client.Client
	await func(done func() bool)
	lines []string
}

// say adds a line: the error of a call, or what it has made of objects.
func (s *script) say(name string, err error, objects ...runtime.Object) {
	line := "ok"
	if err != nil {
		line = "error"
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			line = fmt.Sprint(status.Status().Code, " ", status.Status().Reason)
		}
	} else {
		for _, o := range objects {
			line += " " + plain(o)
		}
	}
	s.lines = append(s.lines, name+": "+line)
}

// plain returns the text of an object without what differs from server to server.
func plain(o runtime.Object) string {
	data, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	content := map[string]any{}
	if err := json.Unmarshal(data, &content); err != nil {
		return err.Error()
	}
	if m, ok := content["metadata"].(map[string]any); ok {
		for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "selfLink"} {
			delete(m, field)
		}
		if m["deletionTimestamp"] != nil {
			m["deletionTimestamp"] = "set"
		}
		if m["generateName"] != nil {
			m["name"] = fmt.Sprint("generated, ", len(fmt.Sprint(m["name"])) <= 63)
		}
		var owners []string
		fields, _ := m["managedFields"].([]any)
		for _, f := range fields {
			f := f.(map[string]any)
			set, _ := json.Marshal(f["fieldsV1"])
			owners = append(owners, fmt.Sprint(f["manager"], " ", f["operation"], " ", f["subresource"], " ", string(set)))
		}
		delete(m, "managedFields")
		if slices.Sort(owners); owners != nil {
			m["managedFields"] = owners
		}
		refs, _ := m["ownerReferences"].([]any)
		for _, r := range refs {
			delete(r.(map[string]any), "uid")
		}
	}
	if _, ok := content["spec"]; ok && content["kind"] != "Widget" { // Defaults are not set in kubetest.
		spec, _ := content["spec"].(map[string]any)
		content["spec"] = map[string]any{"replicas": spec["replicas"], "strategy": spec["strategy"]}
	}
	if content["kind"] != "Widget" {
		delete(content, "status")
	}
	data, _ = json.Marshal(content)
	return string(data)
}

func (s *script) get(name string, o client.Object) {
	s.say(name, s.c.Get(s.ctx, client.ObjectKeyFromObject(o), o), o)
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}, Data: data}
}

const by = client.FieldOwner("test")

// calls makes all calls. Await waits until a garbage collector and the like have done something. Shown is a cache,
// or nil.
func calls(ctx context.Context, c client.Client, shown cache.Cache, await func(func() bool)) []string {
	s := &script{ctx: ctx, c: c, await: await}
	s.objects()
	s.patches()
	s.applies()
	s.deletions()
	s.owners()
	s.lists()
	s.pods()
	if shown != nil {
		s.watches(shown)
	}
	return s.lines
}

func (s *script) objects() {
	ctx, c := s.ctx, s.c
	m := configMap("a", map[string]string{"x": "1"})
	s.say("create", c.Create(ctx, m, by), m)
	s.say("create again", c.Create(ctx, configMap("a", nil), by))
	s.say("create with a version", c.Create(ctx, m.DeepCopy(), by))
	stale := m.DeepCopy()
	m.Data["x"] = "2"
	s.say("update", c.Update(ctx, m, by), m)
	stale.Data["x"] = "3"
	s.say("update of an old version", c.Update(ctx, stale, by))
	before := m.ResourceVersion
	s.say("update of nothing", c.Update(ctx, m, by))
	s.say("no new version", nil, &corev1.ConfigMap{Data: map[string]string{"same": fmt.Sprint(before == m.ResourceVersion)}})
	without := configMap("a", map[string]string{"x": "4"})
	s.say("update without a version", c.Update(ctx, without, by), without)
	s.say("update of none", c.Update(ctx, configMap("none", nil), by))
	other := m.DeepCopy()
	other.ResourceVersion, other.UID = "", "other"
	s.say("update with another uid", c.Update(ctx, other, by))
	other = m.DeepCopy()
	other.ResourceVersion, other.CreationTimestamp = "", metav1.Unix(1, 0)
	s.say("update of the creation", c.Update(ctx, other, by))
	dry := configMap("dry", nil)
	s.say("dry run of a create", c.Create(ctx, dry, by, client.DryRunAll))
	s.get("after it", configMap("dry", nil))
	s.say("bad name", c.Create(ctx, configMap("A_b", nil), by))
	s.say("bad label", c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "l",
		Labels: map[string]string{"a b": "c"}}}, by))
	g := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", GenerateName: strings.Repeat("n", 70)}}
	s.say("generated name", c.Create(ctx, g, by), g)
	s.say("delete it", c.Delete(ctx, g))

	w := widget("w", map[string]any{"size": int64(1)})
	s.say("custom: create", c.Create(ctx, w, by), w)
	_ = unstructured.SetNestedField(w.Object, int64(2), "spec", "size")
	_ = unstructured.SetNestedField(w.Object, "new", "status", "phase")
	s.say("custom: update", c.Update(ctx, w, by), w)
	_ = unstructured.SetNestedField(w.Object, int64(3), "spec", "size")
	_ = unstructured.SetNestedField(w.Object, "new", "status", "phase")
	s.say("custom: status", c.Status().Update(ctx, w, by), w)
	w.SetLabels(map[string]string{"a": "b"})
	s.say("custom: label", c.Update(ctx, w, by), w)
	w.SetResourceVersion("")
	s.say("custom: update without a version", c.Update(ctx, w, by))
	s.say("custom: status without a version", c.Status().Update(ctx, w, by))
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "w"}}
	meta.SetGroupVersionKind(widgets)
	s.get("metadata alone", meta)
}

func (s *script) patches() {
	ctx, c := s.ctx, s.c
	m := configMap("p", map[string]string{"x": "1"})
	s.say("patch: create", c.Create(ctx, m, by))
	raw := func(name string, kind types.PatchType, o client.Object, text string) {
		s.say(name, c.Patch(ctx, o, client.RawPatch(kind, []byte(text)), by), o)
	}
	raw("merge", types.MergePatchType, m, `{"data":{"y":"2","x":null}}`)
	raw("JSON", types.JSONPatchType, m, `[{"op":"test","path":"/data/y","value":"2"},{"op":"add","path":"/data/z","value":"3"}]`)
	raw("JSON that fails", types.JSONPatchType, m, `[{"op":"test","path":"/data/y","value":"9"}]`)
	raw("strategic", types.StrategicMergePatchType, m, `{"data":{"z":null}}`)
	raw("with an old version", types.MergePatchType, m, `{"metadata":{"resourceVersion":"1"},"data":{"y":"7"}}`)
	raw("of none", types.MergePatchType, configMap("none", nil), `{}`)
	raw("of nothing", types.MergePatchType, m, `{"data":{"y":"2"}}`)
	raw("no JSON", types.MergePatchType, m, `{`)
	raw("strategic of a custom kind", types.StrategicMergePatchType, widget("w", nil), `{"spec":{"size":4}}`)
	raw("merge of a custom kind", types.MergePatchType, widget("w", nil), `{"spec":{"size":4,"list":[1,2]}}`)
	w := widget("w", nil)
	s.say("patch of the status", c.Status().Patch(ctx, w, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"size":9},"status":{"phase":"old"}}`)), by), w)
}

func (s *script) applies() {
	ctx, c := s.ctx, s.c
	apply := func(name, owner string, data map[string]string, opts ...client.ApplyOption) {
		o := corev1apply.ConfigMap("s", "d").WithData(data)
		err := c.Apply(ctx, o, append(opts, client.FieldOwner(owner))...)
		now := configMap("s", nil)
		if err == nil {
			err = c.Get(ctx, client.ObjectKeyFromObject(now), now)
		}
		s.say(name, err, now)
	}
	apply("apply", "one", map[string]string{"x": "1", "y": "1"})
	apply("apply of another owner", "two", map[string]string{"z": "2"})
	apply("apply of a field less", "one", map[string]string{"x": "1"})
	apply("conflict", "two", map[string]string{"x": "2", "z": "2"})
	apply("force", "two", map[string]string{"x": "2", "z": "2"}, client.ForceOwnership)
	apply("shared", "one", map[string]string{"x": "2"})
	apply("no longer", "two", map[string]string{"z": "2"})
	m := configMap("s", nil)
	s.get("read", m)
	m.Data = map[string]string{"x": "2", "z": "2", "user": "1"}
	s.say("a user's field", c.Update(ctx, m, by), m)
	apply("it stays", "one", map[string]string{"x": "2"})
	m.Data["z"] = "user"
	_ = c.Get(ctx, client.ObjectKeyFromObject(m), m)
	m.Data["z"] = "user"
	s.say("a user changes a field", c.Update(ctx, m, by))
	apply("conflict with a user", "two", map[string]string{"z": "2"})
	o := corev1apply.ConfigMap("answer", "d").WithData(map[string]string{"x": "1"})
	err := c.Apply(ctx, o, client.FieldOwner("one"))
	s.say("answer in the configuration", err, configMap("answer", map[string]string{
		"set": fmt.Sprint(o.ResourceVersion != nil, o.UID != nil)}))
	s.say("without an owner", c.Apply(ctx, corev1apply.ConfigMap("s", "d")))

	custom := func(name, owner string, change func(*unstructured.Unstructured), opts ...client.ApplyOption) {
		w := widget("applied", nil)
		change(w)
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(w), append(opts, client.FieldOwner(owner))...)
		now := widget("applied", nil)
		if err == nil {
			err = c.Get(ctx, client.ObjectKeyFromObject(now), now)
		}
		s.say(name, err, now)
	}
	custom("custom: apply", "one", func(w *unstructured.Unstructured) {
		w.SetFinalizers([]string{"example.com/one"})
		w.Object["spec"] = map[string]any{"a": int64(1), "list": []any{"x"}}
	})
	custom("custom: another finalizer", "two", func(w *unstructured.Unstructured) {
		w.SetFinalizers([]string{"example.com/two"})
	})
	custom("custom: another list", "two", func(w *unstructured.Unstructured) {
		w.Object["spec"] = map[string]any{"list": []any{"y"}}
	})
	custom("custom: without a finalizer", "one", func(w *unstructured.Unstructured) {
		w.Object["spec"] = map[string]any{"a": int64(1)}
	})
	for _, kind := range []string{"Ready", "Synced"} {
		w := widget("applied", nil)
		w.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": kind, "status": "True"}}}
		err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(w), client.FieldOwner(kind))
		now := widget("applied", nil)
		if err == nil {
			err = c.Get(ctx, client.ObjectKeyFromObject(now), now)
		}
		s.say("condition "+kind, err, now)
	}
	d := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": "d", "name": "deploy"},
		"spec": map[string]any{"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"strategy": map[string]any{"type": "Recreate"},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}}}}
	s.say("a deployment", c.Create(ctx, d.DeepCopy(), by))
	spec := d.Object["spec"].(map[string]any)
	spec["strategy"] = map[string]any{}
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(d), client.FieldOwner("one"), client.ForceOwnership)
	now := d.DeepCopy()
	_ = c.Get(ctx, client.ObjectKeyFromObject(d), now)
	strategy, _, _ := unstructured.NestedString(now.Object, "spec", "strategy", "type")
	s.say("an empty strategy", err, configMap("strategy", map[string]string{"type": strategy}))
}

func (s *script) deletions() {
	ctx, c := s.ctx, s.c
	w := widget("del", map[string]any{"size": int64(1)})
	w.SetFinalizers([]string{"example.com/x", "example.com/y"})
	s.say("del: create", c.Create(ctx, w, by))
	s.say("del: delete", c.Delete(ctx, w))
	s.get("del: marked", w)
	s.say("del: delete again", c.Delete(ctx, w))
	more := w.DeepCopy()
	more.SetFinalizers(append(more.GetFinalizers(), "example.com/z"))
	s.say("del: one more finalizer", c.Update(ctx, more, by))
	w.SetFinalizers([]string{"example.com/y"})
	s.say("del: one less", c.Update(ctx, w, by), w)
	s.say("del: the last", c.Patch(ctx, w, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)), by))
	s.get("del: gone", widget("del", nil))
	s.say("del: of none", c.Delete(ctx, widget("del", nil)))
	m := configMap("pre", nil)
	s.say("pre: create", c.Create(ctx, m, by))
	other := types.UID("other")
	s.say("pre: another uid", c.Delete(ctx, m, client.Preconditions{UID: &other}))
	old := "1"
	s.say("pre: an old version", c.Delete(ctx, m, client.Preconditions{ResourceVersion: &old}))
	s.say("pre: a dry run", c.Delete(ctx, m, client.DryRunAll))
	s.get("pre: there", configMap("pre", nil))
	s.say("pre: this one", c.Delete(ctx, m, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion}))
	for _, name := range []string{"many-1", "many-2"} {
		m := configMap(name, nil)
		m.Labels = map[string]string{"many": "1"}
		s.say(name, c.Create(ctx, m, by))
	}
	all := []client.DeleteAllOfOption{client.InNamespace("d"), client.MatchingLabels{"many": "1"}}
	s.say("a dry run of many", c.DeleteAllOf(ctx, &corev1.ConfigMap{}, append(all, client.DryRunAll)...))
	s.get("many-1 is there", configMap("many-1", nil))
	s.say("delete many", c.DeleteAllOf(ctx, &corev1.ConfigMap{}, all...))
	s.get("many-1 is gone", configMap("many-1", nil))
}

func (s *script) owners() {
	ctx, c := s.ctx, s.c
	yes := true
	ref := func(o client.Object) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: o.GetName(), UID: o.GetUID()}
	}
	bad := configMap("bad", nil)
	bad.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "w"}}
	s.say("an owner without uid", c.Create(ctx, bad, by))
	one, two := ref(widget("w", nil)), ref(widget("v", nil))
	one.UID, two.UID, one.Controller, two.Controller = "1", "2", &yes, &yes
	bad.OwnerReferences = []metav1.OwnerReference{one, two}
	s.say("two controllers", c.Create(ctx, bad, by))
	for _, policy := range []metav1.DeletionPropagation{"", metav1.DeletePropagationBackground,
		metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		name := "owner" + strings.ToLower(string(policy))
		owner := widget(name, map[string]any{})
		s.say(name, c.Create(ctx, owner, by))
		child := configMap("of-"+name, nil)
		child.OwnerReferences = []metav1.OwnerReference{ref(owner)}
		child.OwnerReferences[0].BlockOwnerDeletion = &yes
		s.say("child of "+name, c.Create(ctx, child, by))
		var opts []client.DeleteOption
		if policy != "" {
			opts = append(opts, client.PropagationPolicy(policy))
		}
		time.Sleep(time.Second) // The collector learns of both.
		s.say("delete "+name, c.Delete(ctx, owner, opts...))
		gone := func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(owner), owner)) }
		s.await(func() bool {
			err := c.Get(ctx, client.ObjectKeyFromObject(child), child)
			return gone() && (apierrors.IsNotFound(err) || err == nil && len(child.OwnerReferences) == 0)
		})
		s.get("afterwards "+name, widget(name, nil))
		left := configMap(child.Name, nil)
		err := c.Get(ctx, client.ObjectKeyFromObject(left), left)
		left.ManagedFields = nil
		s.say("afterwards its child", err, left)
	}
}

func (s *script) lists() {
	ctx, c := s.ctx, s.c
	for _, name := range []string{"l-2", "l-1", "l-3"} {
		m := configMap(name, nil)
		m.Labels = map[string]string{"list": "1"}
		s.say(name, c.Create(ctx, m, by))
	}
	opts := []client.ListOption{client.InNamespace("d"), client.MatchingLabels{"list": "1"}}
	show := func(name string, err error, l corev1.ConfigMapList) {
		text := map[string]string{"kind": l.Kind, "left": fmt.Sprint(l.Continue != "")}
		for i, o := range l.Items {
			text[fmt.Sprint(i)] = o.Kind + " " + o.Name
		}
		s.say(name, err, configMap("list", text))
	}
	var l corev1.ConfigMapList
	show("list", c.List(ctx, &l, opts...), l)
	l = corev1.ConfigMapList{}
	show("first page", c.List(ctx, &l, append(opts, client.Limit(2))...), l)
	token := l.Continue
	l = corev1.ConfigMapList{}
	show("second page", c.List(ctx, &l, append(opts, client.Limit(2), client.Continue(token))...), l)
	l = corev1.ConfigMapList{}
	show("a field", c.List(ctx, &l, append(opts, client.MatchingFields{"metadata.name": "l-3"})...), l)
	l = corev1.ConfigMapList{}
	show("no such field", c.List(ctx, &l, append(opts, client.MatchingFields{"data.x": "1"})...), l)
	metas := &metav1.PartialObjectMetadataList{}
	metas.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	err := c.List(ctx, metas, opts...)
	text := map[string]string{"kind": metas.Kind}
	for i, o := range metas.Items {
		text[fmt.Sprint(i)] = o.Kind + " " + o.Name
	}
	s.say("list of metadata", err, configMap("list", text))
	ws := widgetList()
	err = c.List(ctx, ws, client.InNamespace("d"), client.Limit(1))
	text = map[string]string{"kind": ws.GetKind()}
	for i, o := range ws.Items {
		text[fmt.Sprint(i)] = o.GetKind() + " " + o.GetName()
	}
	s.say("list of custom objects", err, configMap("list", text))
}

func (s *script) pods() {
	ctx, c := s.ctx, s.c
	pod := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "pod"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	p := pod()
	var err error
	s.await(func() bool { // Until the namespace has a service account.
		p = pod()
		err = c.Create(ctx, p, by)
		return !apierrors.IsForbidden(err)
	})
	if p.UID == "" { // The wait was not one for an answer.
		err = c.Create(ctx, p, by)
	}
	s.say("pod", err, configMap("pod", map[string]string{"generation": fmt.Sprint(p.Generation)}))
	p.Status.Phase = corev1.PodRunning
	s.say("pod: status", c.Status().Update(ctx, p, by), configMap("pod", map[string]string{
		"phase": string(p.Status.Phase), "generation": fmt.Sprint(p.Generation)}))
	s.say("pod: evict", c.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{}))
	s.say("pod: evicted", c.Get(ctx, client.ObjectKeyFromObject(p), pod()))
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "deploy"}}
	s.say("deployment", c.Get(ctx, client.ObjectKeyFromObject(d), d))
	d.Spec.Selector.MatchLabels["a"], d.Spec.Template.Labels["a"] = "c", "c"
	s.say("an immutable field", c.Update(ctx, d, by))
	scale := &autoscalingv1.Scale{}
	s.say("scale", c.SubResource("scale").Get(ctx, d, scale))
}

// watches says what handlers of a cache's events see, in which order.
func (s *script) watches(shown cache.Cache) {
	ctx, c := s.ctx, s.c
	var mu sync.Mutex
	var events, listed []string
	initial, ended := true, false
	version := func(o any) (n int) {
		_, _ = fmt.Sscan(o.(client.Object).GetResourceVersion(), &n)
		return n
	}
	seen := func(what string, objects ...any) {
		mu.Lock()
		defer mu.Unlock()
		line := what
		for _, o := range objects {
			o := o.(client.Object)
			if !strings.HasPrefix(o.GetName(), "watch-") {
				return
			}
			o.SetManagedFields(nil)
			line += " " + plain(o)
		}
		if initial {
			listed = append(listed, line)
			return
		}
		events = append(events, line)
		ended = ended || strings.Contains(line, "watch-end")
	}
	newer := func(old, now any) string { return fmt.Sprint("newer: ", version(now) > version(old)) }
	latest := make(map[string]any)
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { latest[o.(client.Object).GetName()] = o; seen("add", o) },
		UpdateFunc: func(old, now any) {
			latest[now.(client.Object).GetName()] = now
			seen("update, "+newer(old, now), old, now)
		},
		DeleteFunc: func(o any) { seen("delete, "+newer(latest[o.(client.Object).GetName()], o), o) },
	}
	one, two := configMap("watch-1", map[string]string{"x": "1"}), configMap("watch-2", nil)
	err := errors.Join(c.Create(ctx, one, by), c.Create(ctx, two, by))
	for _, o := range []client.Object{&corev1.ConfigMap{}, widget("", nil)} {
		informer, err2 := shown.GetInformer(ctx, o)
		if err2 == nil {
			_, err2 = informer.AddEventHandler(handler)
		}
		err = errors.Join(err, err2)
	}
	has := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(listed) >= n }
	}
	s.await(has(2))
	mu.Lock()
	initial = false
	mu.Unlock()
	slices.Sort(listed)
	s.say("watch: begins", err)
	s.lines = append(s.lines, listed...)

	one.Data["x"] = "2"
	err = c.Update(ctx, one, by)
	err = errors.Join(err, c.Update(ctx, one, by)) // Nothing changes.
	err = errors.Join(err, c.Delete(ctx, two), c.Create(ctx, configMap("watch-2", nil), by))
	one.Finalizers = []string{"example.com/x"}
	err = errors.Join(err, c.Update(ctx, one, by), c.Delete(ctx, one), c.Delete(ctx, one))
	err = errors.Join(err, c.Get(ctx, client.ObjectKeyFromObject(one), one))
	one.Finalizers = nil
	err = errors.Join(err, c.Update(ctx, one, by), c.Create(ctx, configMap("watch-3", nil), by, client.DryRunAll))
	for _, name := range []string{"watch-b", "watch-a"} {
		err = errors.Join(err, c.Create(ctx, configMap(name, nil), by))
	}
	err = errors.Join(err, c.Delete(ctx, configMap("watch-b", nil)), c.Create(ctx, configMap("watch-end", nil), by))
	s.await(func() bool { mu.Lock(); defer mu.Unlock(); return ended })

	ended = false
	w := widget("watch-w", map[string]any{"size": int64(1)})
	err = errors.Join(err, c.Create(ctx, w, by))
	_ = unstructured.SetNestedField(w.Object, "new", "status", "phase")
	err = errors.Join(err, c.Status().Update(ctx, w, by))
	_ = unstructured.SetNestedField(w.Object, int64(2), "spec", "size")
	err = errors.Join(err, c.Update(ctx, w, by), c.Delete(ctx, w), c.Create(ctx, widget("watch-end", nil), by))
	s.await(func() bool { mu.Lock(); defer mu.Unlock(); return ended })
	s.say("watch: changes", err)
	mu.Lock()
	defer mu.Unlock()
	for i, event := range events {
		s.lines = append(s.lines, fmt.Sprintf("watch %d: %s", i+1, event))
	}
}
