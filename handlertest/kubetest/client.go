package kubetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
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
	isCache       bool // It is the cache, which also has unstructured objects.
	withApply     sync.Once
	overHTTP      client.Client // carries out SubResourceWriter.Apply
}

func (k *kubeClient) Scheme() *runtime.Scheme { return k.cluster.scheme }

func (k *kubeClient) RESTMapper() meta.RESTMapper { return k.cluster.mapper() }

func (k *kubeClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, k.cluster.scheme)
}

func (k *kubeClient) IsObjectNamespaced(o runtime.Object) (bool, error) {
	kind, err := k.GroupVersionKindFor(o)
	k.cluster.mu.Lock()
	defer k.cluster.mu.Unlock()
	return !k.cluster.isGlobal(kind), err
}

// past returns the client that reads past the cache if that is how a manager's client reads such an object.
func (k *kubeClient) past(o runtime.Object) *kubeClient {
	if _, ok := o.(runtime.Unstructured); ok && k.cached && !k.isCache {
		return &kubeClient{cluster: k.cluster, manager: k.manager}
	}
	return k
}

// read calls do at once, or when the time of a call has passed.
func (k *kubeClient) read(ctx context.Context, do func() error) error {
	locked := func() error {
		k.cluster.mu.Lock()
		defer k.cluster.mu.Unlock()
		return do()
	}
	if k.manager == nil || k.cached || k.manager.requests.isCollecting() {
		return locked() // Handlers of events take no time.
	}
	return failed(k.manager.Process.Read(ctx, locked))
}

// failed is the error of a call as an API server or its client returns it.
func failed(err error) error {
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
	k = k.past(into)
	return k.read(ctx, func() error {
		o := k.objects(kind)[key]
		if o == nil && k.cluster.isGlobal(kind) { // Real clients ignore the namespace.
			o = k.objects(kind)[client.ObjectKey{Name: key.Name}]
		}
		if o == nil {
			return apierrors.NewNotFound(resource(kind), key.Name)
		}
		return k.cluster.answer(into, o, kind, k.cached)
	})
}

// answer makes into what a call returns of o. An API server's answer to a typed client does not name the kind
// of an object; a cache does.
func (c *Cluster) answer(into, o client.Object, kind schema.GroupVersionKind, cached bool) error {
	err := c.copyInto(into, o, kind)
	switch into.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
	default:
		if !cached {
			into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}
	return err
}

// newLike returns an empty object of o's type.
func newLike(o client.Object) client.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
}

// copyInto makes into a copy of o, which may be of another type.
func (c *Cluster) copyInto(into, o client.Object, kind schema.GroupVersionKind) error {
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

func (k *kubeClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := k.GroupVersionKindFor(list)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	var o client.ListOptions
	o.ApplyOptions(opts)
	k = k.past(list)
	return k.read(ctx, func() error {
		all, err := k.selected(kind, k.inOrder(kind), o)
		if err != nil {
			return err
		}
		list.SetContinue("")
		list.SetRemainingItemCount(nil)
		if !k.cached {
			all = page(list, all, o)
		} else if o.Limit > 0 {
			all = all[:min(len(all), int(o.Limit))]
		}
		var items []runtime.Object
		for _, o := range all {
			item, err := k.item(list, o, kind)
			if err != nil {
				return err
			}
			items = append(items, item)
		}
		list.SetResourceVersion(fmt.Sprint(k.cluster.version))
		return meta.SetList(list, items)
	})
}

// page returns the page of a list that o asks for, and sets what list says of the next one. The token of a
// page is the last name of the one before.
func page(list client.ObjectList, all []client.Object, o client.ListOptions) []client.Object {
	token := func(o client.Object) string { return o.GetNamespace() + "/" + o.GetName() }
	if o.Continue != "" {
		all = slices.DeleteFunc(all, func(each client.Object) bool { return token(each) <= o.Continue })
	}
	left := int64(len(all)) - o.Limit
	if o.Limit == 0 || left <= 0 {
		return all
	}
	all = all[:o.Limit]
	list.SetContinue(token(all[len(all)-1]))
	list.SetRemainingItemCount(&left)
	return all
}

// inOrder returns the objects of a kind in the order in which a list has them: that of an API server or, for
// a cache, another one each time that something has changed.
func (k *kubeClient) inOrder(kind schema.GroupVersionKind) []client.Object {
	all := sorted(k.objects(kind))
	if k.cached {
		r := rand.New(rand.NewPCG(uint64(k.manager.shown[kind]), uint64(len(all))))
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all
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
		into = newLike(o)
	}
	return into, k.cluster.answer(into, o, kind, k.cached)
}

// selected returns those of objects that are asked for. A field needs an index in a cache; in the truth it
// may be any indexed one, or the name.
func (k *kubeClient) selected(kind schema.GroupVersionKind, objects []client.Object,
	opts client.ListOptions) (selected []client.Object, err error) {
	for _, o := range objects {
		ok := (opts.Namespace == "" || opts.Namespace == o.GetNamespace()) &&
			(opts.LabelSelector == nil || opts.LabelSelector.Matches(labelsOf(o)))
		if ok && opts.FieldSelector != nil {
			for _, r := range opts.FieldSelector.Requirements() {
				values, err := k.fieldOf(kind, o, r)
				if err != nil {
					return nil, err
				}
				ok = ok && slices.Contains(values, r.Value) == (r.Operator != selection.NotEquals)
			}
		}
		if ok {
			selected = append(selected, o)
		}
	}
	return selected, nil
}

func (k *kubeClient) fieldOf(kind schema.GroupVersionKind, o client.Object,
	r fields.Requirement) ([]string, error) {
	if k.cached && r.Operator == selection.NotEquals {
		return nil, errors.New("kubetest: non-exact field matches are not supported by the cache")
	}
	if k.manager != nil {
		if values := k.manager.indexes[index{kind, r.Field}]; values != nil {
			k.cluster.mu.Unlock() // It may use a client.
			defer k.cluster.mu.Lock()
			return values(o), nil
		}
	}
	switch {
	case r.Field == "metadata.name":
		return []string{o.GetName()}, nil
	case r.Field == "metadata.namespace":
		return []string{o.GetNamespace()}, nil
	}
	if !k.cached {
		return nil, apierrors.NewBadRequest("field label not supported: " + r.Field)
	}
	return nil, fmt.Errorf("kubetest: an index with the name field:%s does not exist", r.Field)
}

func labelsOf(o client.Object) labels.Set { return o.GetLabels() }
