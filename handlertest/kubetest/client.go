package kubetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/keyedqueue/workqueue/handlertest"
)

var background = context.Background()

// kubeClient is the client of a process or, without a manager, of somebody else.
type kubeClient struct {
	client.Client // nil: other methods panic
	cluster       *Cluster
	manager       *Manager
	cached        bool // It reads from the cache.
}

func (k *kubeClient) Scheme() *runtime.Scheme { return k.cluster.scheme }

func (k *kubeClient) RESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(k.cluster.scheme.PrioritizedVersionsAllGroups())
	for kind := range k.cluster.scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return mapper
}

func (k *kubeClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, k.cluster.scheme)
}

func (k *kubeClient) IsObjectNamespaced(runtime.Object) (bool, error) { return true, nil }

// read calls do at once, or when the time of a call has passed.
func (k *kubeClient) read(ctx context.Context, do func() error) error {
	locked := func() error {
		k.cluster.mu.Lock()
		defer k.cluster.mu.Unlock()
		return do()
	}
	if k.manager == nil || k.cached {
		return locked()
	}
	return k.failed(k.manager.Process.Read(ctx, locked))
}

// failed is the error of a call as an API server or its client returns it.
func (k *kubeClient) failed(err error) error {
	if errors.Is(err, handlertest.ErrUnavailable) {
		return apierrors.NewTimeoutError(err.Error(), 0)
	}
	return err
}

func (k *kubeClient) objects(kind schema.GroupVersionKind) map[types.NamespacedName]client.Object {
	if k.cached {
		return k.manager.cache[kind]
	}
	return k.cluster.truth[kind]
}

func (k *kubeClient) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	_ ...client.GetOption) error {
	kind, err := k.GroupVersionKindFor(into)
	if err != nil {
		return err
	}
	return k.read(ctx, func() error {
		o := k.objects(kind)[key]
		if o == nil {
			return apierrors.NewNotFound(resource(kind), key.Name)
		}
		return k.copyInto(into, o, kind)
	})
}

// copyInto makes into a copy of o, which may be of another type.
func (k *kubeClient) copyInto(into, o client.Object, kind schema.GroupVersionKind) error {
	if reflect.TypeOf(into) == reflect.TypeOf(o) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	into.GetObjectKind().SetGroupVersionKind(kind)
	if u, ok := into.(*unstructured.Unstructured); ok {
		u.Object = runtime.DeepCopyJSON(content)
		u.SetGroupVersionKind(kind)
		return nil
	}
	if _, ok := into.(*metav1.PartialObjectMetadata); ok {
		content = map[string]any{"metadata": content["metadata"]}
	}
	reflect.ValueOf(into).Elem().SetZero()
	into.GetObjectKind().SetGroupVersionKind(kind)
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, into)
}

func (k *kubeClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := k.GroupVersionKindFor(list)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	var o client.ListOptions
	o.ApplyOptions(opts)
	return k.read(ctx, func() error {
		var items []runtime.Object
		for _, each := range sorted(k.objects(kind)) {
			ok, err := k.matches(kind, each, o)
			if err != nil {
				return err
			}
			if ok {
				item, err := k.item(list, each, kind)
				if err != nil {
					return err
				}
				items = append(items, item)
			}
		}
		list.SetResourceVersion(fmt.Sprint(k.cluster.version))
		return meta.SetList(list, items)
	})
}

// item returns a copy of o of the type that list has.
func (k *kubeClient) item(list client.ObjectList, o client.Object,
	kind schema.GroupVersionKind) (client.Object, error) {
	var into client.Object
	switch list.(type) {
	case *unstructured.UnstructuredList:
		into = &unstructured.Unstructured{}
	case *metav1.PartialObjectMetadataList:
		into = &metav1.PartialObjectMetadata{}
	default:
		return o.DeepCopyObject().(client.Object), nil
	}
	return into, k.copyInto(into, o, kind)
}

// matches reports whether o is one of those that are listed. A field needs an index in a cache; in the truth
// it may be any indexed one, or the name.
func (k *kubeClient) matches(kind schema.GroupVersionKind, o client.Object,
	opts client.ListOptions) (bool, error) {
	if opts.Namespace != "" && opts.Namespace != o.GetNamespace() ||
		opts.LabelSelector != nil && !opts.LabelSelector.Matches(labelsOf(o)) {
		return false, nil
	}
	if opts.FieldSelector == nil {
		return true, nil
	}
	for _, r := range opts.FieldSelector.Requirements() {
		values, err := k.fieldOf(kind, o, r)
		if err != nil {
			return false, err
		}
		has := false
		for _, v := range values {
			has = has || v == r.Value
		}
		if !has {
			return false, nil
		}
	}
	return true, nil
}

func (k *kubeClient) fieldOf(kind schema.GroupVersionKind, o client.Object,
	r fields.Requirement) ([]string, error) {
	if k.manager != nil {
		if values := k.manager.indexes[index{kind, r.Field}]; values != nil {
			return values(o), nil
		}
	}
	switch {
	case r.Field == "metadata.name":
		return []string{o.GetName()}, nil
	case r.Field == "metadata.namespace":
		return []string{o.GetNamespace()}, nil
	}
	return nil, fmt.Errorf("kubetest: an index with the name field:%s does not exist",
		r.Field)
}

// write calls do, which changes the truth, when the time of a call has passed. If it is for one version,
// somebody may have written before.
func (k *kubeClient) write(ctx context.Context, verb string, o client.Object, oneVersion bool,
	do func(kind schema.GroupVersionKind) error) error {
	kind, err := k.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	what := verb + " " + k.cluster.text(kind, o)
	locked := func() error {
		k.cluster.mu.Lock()
		defer k.cluster.mu.Unlock()
		if k.manager != nil && oneVersion && k.manager.Process.Conflict(ctx, what) {
			k.cluster.touch(kind, client.ObjectKeyFromObject(o))
		}
		return do(kind)
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
	return k.write(ctx, "creates", o, false, func(kind schema.GroupVersionKind) error {
		if len(options.DryRun) > 0 {
			return handlertest.ErrUnchanged
		}
		created, err := k.cluster.create(kind, o)
		if err != nil {
			return err
		}
		return k.copyInto(o, created, kind)
	})
}

func (k *kubeClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	var options client.UpdateOptions
	options.ApplyOptions(opts)
	return k.update(ctx, o, len(options.DryRun) > 0, false)
}

func (k *kubeClient) update(ctx context.Context, o client.Object, dryRun, status bool) error {
	verb := "updates"
	if status {
		verb = "updates the status of"
	}
	return k.write(ctx, verb, o, o.GetResourceVersion() != "", func(kind schema.GroupVersionKind) error {
		old, err := k.cluster.get(kind, client.ObjectKeyFromObject(o))
		if err != nil || dryRun {
			return err
		}
		updated, err := k.cluster.update(kind, old, o, status)
		if err != nil && !errors.Is(err, handlertest.ErrUnchanged) {
			return err
		}
		return errors.Join(k.copyInto(o, updated, kind), err)
	})
}

func (k *kubeClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	p := options.Preconditions
	return k.write(ctx, "deletes", o, p != nil && p.ResourceVersion != nil,
		func(kind schema.GroupVersionKind) error {
			old, err := k.cluster.get(kind, client.ObjectKeyFromObject(o))
			if err != nil || len(options.DryRun) > 0 {
				return err
			}
			if p != nil && (p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil &&
				*p.ResourceVersion != old.GetResourceVersion()) {
				return conflict(kind, o.GetName())
			}
			orphan := options.PropagationPolicy != nil && *options.PropagationPolicy == metav1.DeletePropagationOrphan
			return k.cluster.remove(kind, old, orphan)
		})
}

func (k *kubeClient) DeleteAllOf(ctx context.Context, o client.Object,
	opts ...client.DeleteAllOfOption) error {
	var options client.DeleteAllOfOptions
	options.ApplyOptions(opts)
	return k.write(ctx, "deletes all", o, false, func(kind schema.GroupVersionKind) error {
		changed := error(handlertest.ErrUnchanged)
		for _, each := range sorted(k.cluster.truth[kind]) {
			ok, err := k.matches(kind, each, options.ListOptions)
			if ok && err == nil {
				err = k.cluster.remove(kind, each, false)
			}
			switch {
			case err == nil && ok:
				changed = nil
			case err != nil && !errors.Is(err, handlertest.ErrUnchanged):
				return err
			}
		}
		return changed
	})
}

func (k *kubeClient) Status() client.SubResourceWriter { return k.SubResource("status") }

func (k *kubeClient) SubResource(name string) client.SubResourceClient {
	return subresource{client: k, name: name}
}

// subresource is the status of objects; others are not known.
type subresource struct {
	client.SubResourceClient // nil: other methods panic
	client                   *kubeClient
	name                     string
}

func (s subresource) check() error {
	if s.name != "status" {
		return fmt.Errorf("kubetest: the cluster has no subresource %s, but only status", s.name)
	}
	return nil
}

func (s subresource) Update(ctx context.Context, o client.Object,
	opts ...client.SubResourceUpdateOption) error {
	if err := s.check(); err != nil {
		return err
	}
	var options client.SubResourceUpdateOptions
	options.ApplyOptions(opts)
	if options.SubResourceBody != nil {
		o = options.SubResourceBody
	}
	return s.client.update(ctx, o, len(options.DryRun) > 0, true)
}

func (s subresource) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	if err := s.check(); err != nil {
		return err
	}
	var options client.SubResourcePatchOptions
	options.ApplyOptions(opts)
	return s.client.patch(ctx, o, patch, options.PatchOptions, true)
}
