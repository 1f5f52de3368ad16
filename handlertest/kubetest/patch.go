package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest"
)

func (k *kubeClient) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.PatchOption) error {
	var options client.PatchOptions
	options.ApplyOptions(opts)
	return k.patch(ctx, o, patch, options, false)
}

// Apply is a server-side apply.
func (k *kubeClient) Apply(ctx context.Context, o runtime.ApplyConfiguration,
	opts ...client.ApplyOption) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return err
	}
	var options client.ApplyOptions
	options.ApplyOptions(opts)
	return k.patch(ctx, u, client.RawPatch(types.ApplyPatchType, data),
		client.PatchOptions{DryRun: options.DryRun, Force: options.Force, FieldManager: options.FieldManager},
		false)
}

func (k *kubeClient) patch(ctx context.Context, o client.Object, patch client.Patch,
	options client.PatchOptions, status bool) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	verb := "patches"
	if status {
		verb = "patches the status of"
	}
	named := o.DeepCopyObject().(client.Object)
	var meta struct {
		Metadata struct{ ResourceVersion string }
	}
	if patch.Type() == types.JSONPatchType || json.Unmarshal(data, &meta) != nil ||
		meta.Metadata.ResourceVersion == "" {
		named.SetResourceVersion("")
	}
	return k.write(ctx, verb, named, named.GetResourceVersion() != "", func(kind schema.GroupVersionKind) error {
		if len(options.DryRun) > 0 {
			return handlertest.ErrUnchanged
		}
		key := client.ObjectKeyFromObject(o)
		old, err := k.cluster.get(kind, key)
		apply := patch.Type() == types.ApplyPatchType
		if err != nil && (!apply || status) {
			return err
		}
		var now client.Object
		switch {
		case apply:
			now, err = k.cluster.apply(kind, old, data, options, status)
		default:
			if now, err = k.cluster.patched(kind, old, patch.Type(), data); err == nil {
				now, err = k.cluster.update(kind, old, now, status)
			}
		}
		if err != nil && !errors.Is(err, handlertest.ErrUnchanged) {
			return err
		}
		return errors.Join(k.copyInto(o, now, kind), err)
	})
}

// patched returns a copy of o with a patch.
func (c *Cluster) patched(kind schema.GroupVersionKind, o client.Object, patchType types.PatchType,
	data []byte) (client.Object, error) {
	before, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch patchType {
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, data)
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(data); err == nil {
			after, err = patch.Apply(before)
		}
		if err != nil {
			err = apierrors.NewInvalid(kind.GroupKind(), o.GetName(), nil)
		}
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, data, o)
	default:
		err = fmt.Errorf("kubetest: patches of the type %s are not known", patchType)
	}
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(after, &content); err != nil {
		return nil, err
	}
	return c.fromContent(kind, integers(content).(map[string]any))
}

// apply sets the fields of an owner, and takes those out that it had set before. A list is one field.
func (c *Cluster) apply(kind schema.GroupVersionKind, old client.Object, data []byte,
	options client.PatchOptions, status bool) (client.Object, error) {
	if options.FieldManager == "" {
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	}
	var wanted map[string]any
	if err := json.Unmarshal(data, &wanted); err != nil {
		return nil, err
	}
	content := map[string]any{}
	owners := make(map[string]map[string]bool)
	if old != nil {
		whole, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
		if err != nil {
			return nil, err
		}
		content, owners = runtime.DeepCopyJSON(whole), c.fields[old.GetUID()]
		if owners == nil {
			owners = make(map[string]map[string]bool)
		}
	}
	owner := options.FieldManager
	if status {
		owner += " (status)"
	}
	set := make(map[string]bool)
	for path, value := range leaves(wanted, nil) {
		if skip := strings.HasPrefix(path, "status\x00") || path == "status"; skip != status && !fixed(path) {
			continue
		}
		fields := strings.Split(path, "\x00")
		current, found, _ := unstructured.NestedFieldNoCopy(content, fields...)
		for other, theirs := range owners {
			if other != owner && theirs[path] && found && !reflect.DeepEqual(current, value) {
				if options.Force == nil || !*options.Force {
					return nil, apierrors.NewApplyConflict(nil,
						fmt.Sprintf("conflict with %q: %s", other, strings.Join(fields, ".")))
				}
				delete(theirs, path)
			}
		}
		if err := unstructured.SetNestedField(content, value, fields...); err != nil {
			return nil, err
		}
		if !fixed(path) {
			set[path] = true
		}
	}
	for path := range owners[owner] {
		shared := false
		for other, theirs := range owners {
			shared = shared || other != owner && theirs[path]
		}
		if !set[path] && !shared {
			unstructured.RemoveNestedField(content, strings.Split(path, "\x00")...)
		}
	}
	now, err := c.fromContent(kind, content)
	if err != nil {
		return nil, err
	}
	if old == nil {
		now, err = c.create(kind, now)
	} else {
		now, err = c.update(kind, old, now, status)
	}
	if err == nil || errors.Is(err, handlertest.ErrUnchanged) {
		owners[owner] = set
		c.fields[now.GetUID()] = owners
	}
	return now, err
}

// fixed reports whether a field names the object, and so belongs to nobody.
func fixed(path string) bool {
	return slices.Contains([]string{"apiVersion", "kind", "metadata\x00name", "metadata\x00namespace",
		"metadata\x00uid",
		"metadata\x00resourceVersion"}, path)
}

// leaves returns the values in content that are no maps, by their paths.
func leaves(content map[string]any, above []string) map[string]any {
	all := make(map[string]any)
	for key, value := range content {
		path := append(slices.Clone(above), key)
		if below, ok := value.(map[string]any); ok && len(below) > 0 {
			for path, value := range leaves(below, path) {
				all[path] = value
			}
		} else if value != nil {
			all[strings.Join(path, "\x00")] = integers(value)
		}
	}
	return all
}

// integers returns a value of JSON with the integers that Kubernetes' converter has.
func integers(value any) any {
	switch v := value.(type) {
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	}
	return value
}

func labelsOf(o client.Object) labels.Set { return o.GetLabels() }
