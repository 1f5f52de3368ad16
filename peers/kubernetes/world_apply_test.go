package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applies makes server-side applies of several owners: of a kind of Kubernetes and of a custom one.
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
