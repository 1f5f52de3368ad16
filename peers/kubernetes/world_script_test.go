package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

// calls makes all calls. They stand in the other files of this test, by subjects. Await waits until a garbage
// collector and the like have done something. Shown is a cache, or nil.
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
