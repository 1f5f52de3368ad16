package main

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objects makes creates and updates, and what is refused of them.
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

// patches makes patches of the three kinds.
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

// deletions makes deletions: with finalizers, preconditions, dry runs, and of many.
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

// pods makes calls of subresources, and of an immutable field.
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
