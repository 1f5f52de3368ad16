package kubetest

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// customType is how fields of kinds that are not Kubernetes' own are merged: metadata as in every kind, the
// conditions of a status by their types, as most of them declare, and every other list as a whole.
const customType = `
types:
- name: object
  map:
    fields:
    - {name: metadata, type: {namedType: metadata}}
    - {name: spec, type: {namedType: __untyped_deduced_}}
    - {name: status, type: {namedType: status}}
    elementType: {namedType: __untyped_deduced_}
- name: metadata
  map:
    fields:
    - name: finalizers
      type: {list: {elementType: {scalar: string}, elementRelationship: associative}}
    - name: ownerReferences
      type:
        list: {elementType: {namedType: __untyped_deduced_}, elementRelationship: associative, keys: [uid]}
    elementType: {namedType: __untyped_deduced_}
- name: status
  map:
    fields:
    - name: conditions
      type:
        list: {elementType: {namedType: __untyped_deduced_}, elementRelationship: associative, keys: [type]}
    elementType: {namedType: __untyped_deduced_}
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`

var (
	kubernetesTypes = applyconfigurations.NewTypeConverter(scheme.Scheme)
	customObject    = func() typed.ParseableType {
		parser, err := typed.NewParser(customType)
		if err != nil {
			panic(err)
		}
		return parser.Type("object")
	}()
)

// customTypes converts objects of other kinds.
type customTypes struct{ managedfields.TypeConverter }

func (customTypes) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	content := o.(*unstructured.Unstructured).Object
	value, err := customObject.FromUnstructured(content, opts...)
	if err != nil { // Its conditions are of another form.
		value, err = typed.DeducedParseableType.FromUnstructured(content, opts...)
	}
	return value, err
}

// oneVersion converts nothing: the cluster has each object in one version.
type oneVersion struct{ runtime.ObjectConvertor }

func (oneVersion) ConvertToVersion(o runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return o, nil
}

// objectOf returns an object with a copy of content, which is nil if the object does not exist.
func objectOf(kind schema.GroupVersionKind, content map[string]any) *unstructured.Unstructured {
	if content == nil {
		content = make(map[string]any)
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	u.SetGroupVersionKind(kind)
	return u
}

// fieldsOf returns what decides who manages which field of the objects of a kind: the API server's code.
func fieldsOf(w writeOptions) *managedfields.FieldManager {
	types := managedfields.TypeConverter(customTypes{managedfields.NewDeducedTypeConverter()})
	if isKubernetes(w.kind) {
		types = kubernetesTypes
	}
	fields, err := managedfields.NewDefaultCRDFieldManager(types, oneVersion{},
		unstructuredscheme.NewUnstructuredDefaulter(), unstructuredscheme.NewUnstructuredCreator(), w.kind,
		w.kind.GroupVersion(), w.subresource, nil)
	must(err)
	return fields
}

// applied returns what an owner's Apply makes of an object, whose content is nil if it does not exist yet.
func applied(w writeOptions, content map[string]any, wanted *unstructured.Unstructured,
	force bool) (map[string]any, error) {
	live, patch, status := objectOf(w.kind, content), wanted.DeepCopy(), w.subresource == "status"
	patch.SetResourceVersion("")
	patch.SetUID("")
	for key := range patch.Object {
		if (key == "status") != status && key != "apiVersion" && key != "kind" && key != "metadata" {
			delete(patch.Object, key)
		}
	}
	if status {
		patch.Object["metadata"] = map[string]any{"name": patch.GetName()}
	}
	now, err := fieldsOf(w).Apply(live, patch, w.owner, force)
	if err != nil || now == nil {
		return content, err
	}
	return now.(*unstructured.Unstructured).Object, nil
}

// managedFields returns who manages the fields of an object after a write that has changed its content.
// Before is nil for a new object.
func managedFields(w writeOptions, before, after map[string]any) []metav1.ManagedFieldsEntry {
	now := fieldsOf(w).UpdateNoErrors(objectOf(w.kind, before), objectOf(w.kind, after), w.owner)
	return now.(*unstructured.Unstructured).GetManagedFields()
}

// sameFields reports whether two lists of managed fields differ in nothing but times.
func sameFields(a, b []metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if x.Time, y.Time = nil, nil; !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}
