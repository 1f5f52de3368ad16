package kubetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/keyedqueue/workqueue/handlertest"
)

// kubeClient is the client of a process or, without a manager, of somebody else.
type kubeClient struct {
	client.Client // nil: other methods panic
	cluster       *Cluster
	manager       *Manager
	cache         client.Reader // nil: it reads all from the API server
	dial          sync.Once
	overHTTP      client.Client // carries out SubResourceWriter.Apply
}

func (k *kubeClient) Scheme() *runtime.Scheme { return k.cluster.scheme }

func (k *kubeClient) RESTMapper() meta.RESTMapper { return kindMapper{cluster: k.cluster} }

func (k *kubeClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, k.cluster.scheme)
}

func (k *kubeClient) IsObjectNamespaced(o runtime.Object) (bool, error) {
	kind, err := k.GroupVersionKindFor(o)
	k.cluster.mu.Lock()
	defer k.cluster.mu.Unlock()
	return !k.cluster.isGlobal(kind), err
}

// isCached reports whether objects of a kind and of the type of o are read from the cache.
func (k *kubeClient) isCached(o runtime.Object, kind schema.GroupVersionKind) bool {
	_, isUnstructured := o.(runtime.Unstructured)
	options, isOfKind := k.cluster.Cache, func(o client.Object) bool { return k.cluster.kindOf(o) == kind }
	return k.cache != nil && (!isUnstructured || options.Unstructured) &&
		!slices.ContainsFunc(options.DisableFor, isOfKind)
}

// read calls do at once, or when the time of a call has passed.
func (k *kubeClient) read(ctx context.Context, do func() error) error {
	locked := func() error {
		k.cluster.mu.Lock()
		defer k.cluster.mu.Unlock()
		return do()
	}
	if k.manager == nil || k.manager.requests.isCollecting() {
		return locked() // Handlers of events take no time.
	}
	return asAPIError(k.manager.Process.Read(ctx, locked))
}

// asAPIError is the error of a call as an API server or its client returns it.
func asAPIError(err error) error {
	if errors.Is(err, handlertest.ErrUnavailable) {
		return apierrors.NewTimeoutError(err.Error(), 0)
	}
	return err
}

func (k *kubeClient) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	opts ...client.GetOption) error {
	kind, err := k.GroupVersionKindFor(into)
	if err != nil {
		return err
	}
	if k.isCached(into, kind) {
		return k.cache.Get(ctx, key, into, opts...)
	}
	return k.read(ctx, func() error {
		o, err := k.cluster.find(k.cluster.truth, kind, key)
		if err != nil {
			return err
		}
		return answerWith(into, o, kind)
	})
}

// find returns the object with that key in the truth or in a cache.
func (c *Cluster) find(among objects, kind schema.GroupVersionKind, key client.ObjectKey) (client.Object, error) {
	o := among[kind][key]
	if o == nil && c.isGlobal(kind) { // Real clients ignore the namespace.
		o = among[kind][client.ObjectKey{Name: key.Name}]
	}
	if o == nil {
		return nil, apierrors.NewNotFound(resource(kind), key.Name)
	}
	return o, nil
}

func (k *kubeClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := k.cluster.kindOfItems(list)
	if err != nil {
		return err
	}
	if k.isCached(list, kind) {
		return k.cache.List(ctx, list, opts...)
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	return k.read(ctx, func() error {
		all, err := selected(sorted(k.cluster.truth[kind]), options, fieldOf)
		if err != nil {
			return err
		}
		list.SetResourceVersion(fmt.Sprint(k.cluster.version))
		return setItems(list, page(list, all, options), kind, answerWith)
	})
}

// page returns the page of a list that options ask for, and sets what list says of the next one. The token of
// a page is the last name of the one before.
func page(list client.ObjectList, all []client.Object, options client.ListOptions) []client.Object {
	token := func(o client.Object) string { return o.GetNamespace() + "/" + o.GetName() }
	all = slices.DeleteFunc(all, func(o client.Object) bool { return token(o) <= options.Continue })
	list.SetContinue("")
	list.SetRemainingItemCount(nil)
	if left := int64(len(all)) - options.Limit; options.Limit > 0 && left > 0 {
		all = all[:options.Limit]
		list.SetContinue(token(all[options.Limit-1]))
		list.SetRemainingItemCount(&left)
	}
	return all
}

// fieldValues returns what objects have in a field by which they may be selected.
type fieldValues func(by fields.Requirement) (func(o client.Object) []string, error)

// selected returns those of all that options ask for.
func selected(all []client.Object, options client.ListOptions,
	values fieldValues) (found []client.Object, err error) {
	for _, o := range all {
		if (options.Namespace == "" || options.Namespace == o.GetNamespace()) &&
			(options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(o.GetLabels()))) {
			found = append(found, o)
		}
	}
	if options.FieldSelector == nil {
		return found, nil
	}
	for _, by := range options.FieldSelector.Requirements() {
		valuesOf, err := values(by)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(o client.Object) bool {
			return slices.Contains(valuesOf(o), by.Value) != (by.Operator != selection.NotEquals)
		})
	}
	return found, nil
}

// fieldOf returns what objects have at a path such as spec.nodeName, by which an API server may select.
func fieldOf(by fields.Requirement) (func(o client.Object) []string, error) {
	path := strings.Split(by.Field, ".")
	if !slices.Contains([]string{"metadata", "spec", "status", "type", "involvedObject"}, path[0]) {
		return nil, apierrors.NewBadRequest("field label not supported: " + by.Field)
	}
	return func(o client.Object) []string {
		value, found, _ := unstructured.NestedFieldNoCopy(contentOf(o), path...)
		if !found {
			value = ""
		}
		return []string{fmt.Sprint(value)}
	}, nil
}
