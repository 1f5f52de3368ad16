package kubetest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Objects of one kind may have several types: that of the scheme, which the cluster keeps, unstructured ones,
// and those that have only metadata.

// objects are objects by their kinds and names.
type objects map[schema.GroupVersionKind]map[types.NamespacedName]client.Object

func (c *Cluster) kindOf(o runtime.Object) schema.GroupVersionKind {
	kind, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		panic(fmt.Sprintf("kubetest: the scheme of the cluster: %v", err))
	}
	return kind
}

// textOf names an object for the story.
func textOf(kind schema.GroupVersionKind, o client.Object) string {
	name := strings.TrimPrefix(o.GetNamespace()+"/", "/") + cmp.Or(o.GetName(), o.GetGenerateName()+"*")
	if v := o.GetResourceVersion(); v != "" {
		name += "@" + v
	}
	return kind.Kind + " " + name
}

func sorted(all map[types.NamespacedName]client.Object) []client.Object {
	return slices.SortedFunc(maps.Values(all), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func resource(kind schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}

func (c *Cluster) kinds() []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(c.truth),
		func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
}

// copyField makes a field of into what it is in from.
func copyField(into, from map[string]any, path ...string) {
	unstructured.RemoveNestedField(into, path...)
	if value, found, _ := unstructured.NestedFieldCopy(from, path...); found {
		_ = unstructured.SetNestedField(into, value, path...)
	}
}

// contentOf returns the content of an object, which shares nothing with it.
func contentOf(o client.Object) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return runtime.DeepCopyJSON(u.Object)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(fmt.Sprintf("kubetest: %T has no JSON: %v", o, err))
	}
	return content
}

// fromContent returns an object of the type that the scheme has for its kind.
func (c *Cluster) fromContent(kind schema.GroupVersionKind, content map[string]any) (client.Object, error) {
	known, err := c.scheme.New(kind)
	if err != nil {
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(kind)
		return u, nil
	}
	typed := known.(client.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	typed.GetObjectKind().SetGroupVersionKind(kind)
	return typed, nil
}

// copyInto makes into a copy of o, which may be of another type.
func copyInto(into, o client.Object, kind schema.GroupVersionKind) error {
	if reflect.TypeOf(into) == reflect.TypeOf(o) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
		return nil
	}
	content := contentOf(o)
	if u, ok := into.(*unstructured.Unstructured); ok {
		u.Object = content
		u.SetGroupVersionKind(kind)
		return nil
	}
	if _, ok := into.(*metav1.PartialObjectMetadata); ok {
		content = map[string]any{"metadata": content["metadata"]}
	}
	reflect.ValueOf(into).Elem().SetZero()
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, into)
	into.GetObjectKind().SetGroupVersionKind(kind)
	return err
}

// answerWith is copyInto for what an API server answers: an object of a Go type does not name its kind.
func answerWith(into, o client.Object, kind schema.GroupVersionKind) error {
	err := copyInto(into, o, kind)
	switch into.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
	default:
		into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return err
}

// newLike returns an empty object of o's type.
func newLike(o client.Object) client.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
}

// kindOfItems returns the kind of the objects of a list.
func (c *Cluster) kindOfItems(list client.ObjectList) (schema.GroupVersionKind, error) {
	kind, err := apiutil.GVKForObject(list, c.scheme)
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return kind, err
}

// setItems makes the items of a list copies of all.
func setItems(list client.ObjectList, all []client.Object, kind schema.GroupVersionKind,
	copyInto func(into, o client.Object, kind schema.GroupVersionKind) error) error {
	var items []runtime.Object
	for _, o := range all {
		var item client.Object
		switch list.(type) {
		case *unstructured.UnstructuredList:
			item = &unstructured.Unstructured{}
		case *metav1.PartialObjectMetadataList:
			item = &metav1.PartialObjectMetadata{}
		default:
			item = newLike(o)
		}
		if err := copyInto(item, o, kind); err != nil {
			return err
		}
		items = append(items, item)
	}
	return meta.SetList(list, items)
}
