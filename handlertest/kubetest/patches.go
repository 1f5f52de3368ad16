package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (k *kubeClient) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.PatchOption) error {
	var options client.PatchOptions
	options.ApplyOptions(opts)
	return k.patch(ctx, o, patch, "", options)
}

// Apply is a server-side apply. It writes the answer into o, as the client of controller-runtime does.
func (k *kubeClient) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	var options client.ApplyOptions
	options.ApplyOptions(opts)
	data, err := json.Marshal(o)
	u := &unstructured.Unstructured{}
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err == nil {
		err = k.patch(ctx, u, client.RawPatch(types.ApplyPatchType, data), "", client.PatchOptions{
			DryRun: options.DryRun, Force: options.Force, FieldManager: options.FieldManager})
	}
	if err == nil {
		data, err = json.Marshal(u)
		err = errors.Join(err, json.Unmarshal(data, o))
	}
	return err
}

func (k *kubeClient) patch(ctx context.Context, o client.Object, patch client.Patch, subresource string,
	options client.PatchOptions) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	isApply := patch.Type() == types.ApplyPatchType
	if isApply && options.FieldManager == "" {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "PatchOptions"}, "",
			field.ErrorList{field.Required(field.NewPath("fieldManager"), "is required for apply patch")})
	}
	wanted := &unstructured.Unstructured{}
	if patch.Type() != types.JSONPatchType {
		if err := utiljson.Unmarshal(data, &wanted.Object); err != nil { // with integers
			return apierrors.NewBadRequest(err.Error())
		}
	}
	w := newWriteOptions("patches", options.DryRun, options.FieldManager)
	w.subresource, w.mustExist = subresource, !isApply
	w.version, w.uid = wanted.GetResourceVersion(), wanted.GetUID()
	return k.write(ctx, o, w, func(w writeOptions, old client.Object) (client.Object, error) {
		if isApply {
			return k.cluster.apply(w, old, wanted, options.Force != nil && *options.Force)
		}
		now, err := patched(w.kind, old, patch.Type(), data)
		if err != nil {
			return nil, err
		}
		return k.cluster.update(w, old, now)
	})
}

// apply makes the fields in wanted those of the write's owner. Old is nil if there is no object yet.
func (c *Cluster) apply(w writeOptions, old client.Object, wanted *unstructured.Unstructured,
	force bool) (client.Object, error) {
	var content map[string]any
	if old != nil {
		content = contentOf(old)
	} else if w.subresource != "" || w.version != "" || w.uid != "" {
		return nil, apierrors.NewNotFound(resource(w.kind), wanted.GetName())
	}
	content, err := applied(w, content, wanted, force)
	if err != nil {
		return nil, err
	}
	w.owner = "" // The fields have their owners.
	now := objectOf(w.kind, content)
	if old == nil {
		return c.create(w, now)
	}
	return c.update(w, old, now)
}

// patched returns a copy of o with a patch.
func patched(kind schema.GroupVersionKind, o client.Object, patchType types.PatchType,
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
		if !isKubernetes(kind) {
			return nil, apierrors.NewGenericServerResponse(415, "patch", resource(kind), o.GetName(),
				"the body of the request was in an unknown format", 0, true)
		}
		after, err = strategicpatch.StrategicMergePatch(before, data, o)
	default:
		err = fmt.Errorf("kubetest: patches of the type %s are not known", patchType)
	}
	now := &unstructured.Unstructured{}
	if err == nil {
		err = utiljson.Unmarshal(after, &now.Object)
	}
	return now, err
}
