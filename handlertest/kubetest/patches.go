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
	return k.patch(ctx, o, patch, options, false)
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
		patch := client.PatchOptions{DryRun: options.DryRun, Force: options.Force}
		patch.FieldManager = options.FieldManager
		err = k.patch(ctx, u, client.RawPatch(types.ApplyPatchType, data), patch, false)
	}
	if err == nil {
		data, err = json.Marshal(u)
		err = errors.Join(err, json.Unmarshal(data, o))
	}
	return err
}

func (k *kubeClient) patch(ctx context.Context, o client.Object, patch client.Patch, options client.PatchOptions,
	status bool) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	w := k.optionsOf("patches", status, options.DryRun, options.FieldManager)
	isApply := patch.Type() == types.ApplyPatchType
	if isApply && options.FieldManager == "" {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "PatchOptions"}, "",
			field.ErrorList{field.Required(field.NewPath("fieldManager"), "is required for apply patch")})
	}
	var wanted map[string]any
	if patch.Type() != types.JSONPatchType {
		if err := utiljson.Unmarshal(data, &wanted); err != nil { // with integers
			return apierrors.NewBadRequest(err.Error())
		}
	}
	version, _, _ := unstructured.NestedString(wanted, "metadata", "resourceVersion")
	w.oneVersion = version != ""
	return k.write(ctx, o, w, func(kind schema.GroupVersionKind) (client.Object, error) {
		old, err := k.cluster.get(kind, client.ObjectKeyFromObject(o))
		switch {
		case isApply:
			force := options.Force != nil && *options.Force
			return k.cluster.apply(kind, old, wanted, w, force)
		case err != nil:
			return nil, err
		}
		now, err := k.cluster.patched(kind, old, patch.Type(), data)
		if err != nil {
			return nil, err
		}
		return k.cluster.update(kind, old, now, w)
	})
}

// apply makes the fields in wanted those of an owner. Old is nil if there is no object yet.
func (c *Cluster) apply(kind schema.GroupVersionKind, old client.Object, wanted map[string]any, w writeOptions,
	force bool) (client.Object, error) {
	asked := &unstructured.Unstructured{Object: wanted}
	var content map[string]any
	if old != nil {
		content = contentOf(old)
	} else if w.status || asked.GetUID() != "" || asked.GetResourceVersion() != "" {
		return nil, apierrors.NewNotFound(resource(kind), asked.GetName())
	}
	if v := asked.GetResourceVersion(); old != nil && (v != "" && v != old.GetResourceVersion() ||
		asked.GetUID() != "" && asked.GetUID() != old.GetUID()) {
		return nil, conflict(kind, asked.GetName())
	}
	content, err := c.applied(kind, content, wanted, w.status, w.owner, force)
	if err != nil {
		return nil, err
	}
	now, err := c.fromContent(kind, content)
	if err != nil {
		return nil, err
	}
	w.owner = "" // The fields have their owners.
	if old == nil {
		return c.create(kind, now, w)
	}
	return c.update(kind, old, now, w)
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
		if !isKubernetes(kind) {
			return nil, apierrors.NewGenericServerResponse(415, "patch", resource(kind), o.GetName(),
				"the body of the request was in an unknown format", 0, true)
		}
		after, err = strategicpatch.StrategicMergePatch(before, data, o)
	default:
		err = fmt.Errorf("kubetest: patches of the type %s are not known", patchType)
	}
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := utiljson.Unmarshal(after, &content); err != nil {
		return nil, err
	}
	return c.fromContent(kind, content)
}
