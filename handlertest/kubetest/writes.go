package kubetest

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest"
)

// how is what the options of a write say.
type how struct {
	verb       string
	dryRun     bool
	owner      string // of the fields
	status     bool   // It writes the status, and nothing else.
	oneVersion bool   // It is for one version of the object: somebody may have written before.
}

func (k *kubeClient) how(verb string, status bool, dryRun []string, owner string) how {
	if status {
		verb += " the status of"
	}
	if len(dryRun) > 0 {
		verb = "(dry run) " + verb
	}
	by := "somebody"
	if k.manager != nil {
		by = "controller"
	}
	return how{verb: verb, status: status, dryRun: len(dryRun) > 0, owner: cmp.Or(owner, by)}
}

// write calls do, which changes the truth and returns what the answer is, when the time of a call has passed.
func (k *kubeClient) write(ctx context.Context, o client.Object, h how,
	do func(kind schema.GroupVersionKind) (client.Object, error)) error {
	kind, err := k.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	what := h.verb + " " + k.cluster.text(kind, o)
	locked := func() error {
		k.cluster.mu.Lock()
		defer k.cluster.mu.Unlock()
		if k.manager != nil && h.oneVersion && k.manager.Process.Conflict(ctx, what) {
			k.cluster.touch(kind, client.ObjectKeyFromObject(o))
		}
		k.cluster.dry = h.dryRun
		defer func() { k.cluster.dry = false }()
		answer, err := do(kind)
		if err == nil && h.dryRun {
			err = handlertest.ErrUnchanged
		}
		if answer == nil || err != nil && !errors.Is(err, handlertest.ErrUnchanged) {
			return err
		}
		return errors.Join(k.cluster.answer(o, answer, kind, false), err)
	}
	if k.manager != nil {
		return k.failed(k.manager.Process.Write(ctx, what, locked))
	}
	err = locked()
	if errors.Is(err, handlertest.ErrUnchanged) {
		return nil
	}
	if err == nil {
		k.cluster.tell("somebody: %s", what)
	}
	return err
}

func (k *kubeClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	var options client.CreateOptions
	options.ApplyOptions(opts)
	h := k.how("creates", false, options.DryRun, options.FieldManager)
	return k.write(ctx, o, h, func(kind schema.GroupVersionKind) (client.Object, error) {
		return k.cluster.create(kind, o, h.owner)
	})
}

// createWhole creates a copy of o with the status that it has, and returns it.
func (k *kubeClient) createWhole(ctx context.Context, o client.Object) (client.Object, error) {
	o = o.DeepCopyObject().(client.Object)
	status := o.DeepCopyObject().(client.Object)
	if err := k.Create(ctx, o); err != nil || !k.cluster.hasStatus(o) {
		return o, err
	}
	status.SetName(o.GetName())
	status.SetResourceVersion(o.GetResourceVersion())
	return status, k.Status().Update(ctx, status)
}

func (k *kubeClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	var options client.UpdateOptions
	options.ApplyOptions(opts)
	return k.update(ctx, o, k.how("updates", false, options.DryRun, options.FieldManager))
}

func (k *kubeClient) update(ctx context.Context, o client.Object, h how) error {
	h.oneVersion = o.GetResourceVersion() != ""
	return k.write(ctx, o, h, func(kind schema.GroupVersionKind) (client.Object, error) {
		old, err := k.cluster.get(kind, client.ObjectKeyFromObject(o))
		if err != nil {
			return nil, err
		}
		return k.cluster.update(kind, old, o, h)
	})
}

func (k *kubeClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	p, h := options.Preconditions, k.how("deletes", false, options.DryRun, "")
	h.oneVersion = p != nil && p.ResourceVersion != nil
	return k.write(ctx, o, h, func(kind schema.GroupVersionKind) (client.Object, error) {
		old, err := k.cluster.get(kind, client.ObjectKeyFromObject(o))
		if err != nil {
			return nil, err
		}
		if p != nil && (p.UID != nil && *p.UID != old.GetUID() ||
			p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()) {
			return nil, conflict(kind, o.GetName())
		}
		return nil, k.cluster.remove(kind, old, options.PropagationPolicy)
	})
}

func (k *kubeClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	var options client.DeleteAllOfOptions
	options.ApplyOptions(opts)
	h := k.how("deletes all", false, options.DryRun, "")
	return k.write(ctx, o, h, func(kind schema.GroupVersionKind) (client.Object, error) {
		changed := error(handlertest.ErrUnchanged)
		for _, each := range sorted(k.cluster.truth[kind]) {
			ok, err := k.matches(kind, each, options.ListOptions)
			if ok && err == nil {
				err = k.cluster.remove(kind, each, options.PropagationPolicy)
			}
			switch {
			case err == nil && ok:
				changed = nil
			case err != nil && !errors.Is(err, handlertest.ErrUnchanged):
				return nil, err
			}
		}
		return nil, changed
	})
}

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
		how := client.PatchOptions{DryRun: options.DryRun, Force: options.Force, FieldManager: options.FieldManager}
		err = k.patch(ctx, u, client.RawPatch(types.ApplyPatchType, data), how, false)
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
	h := k.how("patches", status, options.DryRun, options.FieldManager)
	isApply := patch.Type() == types.ApplyPatchType
	if isApply && options.FieldManager == "" {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "PatchOptions"}, "",
			field.ErrorList{field.Required(field.NewPath("fieldManager"), "is required for apply patch")})
	}
	var wanted map[string]any
	if patch.Type() != types.JSONPatchType {
		if err := json.Unmarshal(data, &wanted); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		integers(wanted)
	}
	version, _, _ := unstructured.NestedString(wanted, "metadata", "resourceVersion")
	h.oneVersion = version != ""
	return k.write(ctx, o, h, func(kind schema.GroupVersionKind) (client.Object, error) {
		old, err := k.cluster.get(kind, client.ObjectKeyFromObject(o))
		switch {
		case isApply:
			force := options.Force != nil && *options.Force
			return k.cluster.apply(kind, old, wanted, h, force)
		case err != nil:
			return nil, err
		}
		now, err := k.cluster.patched(kind, old, patch.Type(), data)
		if err != nil {
			return nil, err
		}
		return k.cluster.update(kind, old, now, h)
	})
}

// apply makes the fields in wanted those of an owner. Old is nil if there is no object yet.
func (c *Cluster) apply(kind schema.GroupVersionKind, old client.Object, wanted map[string]any, h how,
	force bool) (client.Object, error) {
	asked := &unstructured.Unstructured{Object: wanted}
	var content map[string]any
	if old != nil {
		content = contentOf(old)
	} else if h.status || asked.GetUID() != "" || asked.GetResourceVersion() != "" {
		return nil, apierrors.NewNotFound(resource(kind), asked.GetName())
	}
	if v := asked.GetResourceVersion(); old != nil && (v != "" && v != old.GetResourceVersion() ||
		asked.GetUID() != "" && asked.GetUID() != old.GetUID()) {
		return nil, conflict(kind, asked.GetName())
	}
	content, err := c.applied(kind, content, wanted, h.status, h.owner, force)
	if err != nil {
		return nil, err
	}
	now, err := c.fromContent(kind, content)
	if err != nil {
		return nil, err
	}
	h.owner = "" // The fields have their owners.
	if old == nil {
		return c.create(kind, now, h.owner)
	}
	return c.update(kind, old, now, h)
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
	if err := json.Unmarshal(after, &content); err != nil {
		return nil, err
	}
	return c.fromContent(kind, integers(content).(map[string]any))
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
