package kubetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest"
)

// What an API server does at one moment to the objects that it keeps. The callers hold the cluster's mu.

// get returns the object itself, or an error.
func (c *Cluster) get(kind schema.GroupVersionKind, key types.NamespacedName) (client.Object, error) {
	if o := c.truth[kind][key]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(resource(kind), key.Name)
}

func conflict(kind schema.GroupVersionKind, name string) error {
	return apierrors.NewConflict(resource(kind), name, errors.New("the object has been modified"))
}

// create makes o an object of the truth, and returns it as it is there. Without an owner, its fields have
// theirs already.
func (c *Cluster) create(kind schema.GroupVersionKind, o client.Object, w writeOptions) (client.Object, error) {
	if o.GetResourceVersion() != "" {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500,
			Message: "resourceVersion should not be set on objects to be created"}}
	}
	content := contentOf(o)
	if c.hasStatus(o) {
		delete(content, "status")
	}
	o, err := c.fromContent(kind, content)
	if err != nil {
		return nil, err
	}
	if base := o.GetGenerateName(); o.GetName() == "" && base != "" {
		o.SetName(base[:min(len(base), 58)] + strconv.Itoa(c.version+1))
	}
	if _, err := c.get(kind, client.ObjectKeyFromObject(o)); err == nil {
		return nil, apierrors.NewAlreadyExists(resource(kind), o.GetName())
	}
	o.SetUID(types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012[1]d", c.version+1)))
	if o.SetGeneration(0); hasGeneration(kind) {
		o.SetGeneration(1)
	}
	o.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	o.SetDeletionTimestamp(nil)
	c.setDefaults(o)
	if err := c.valid(kind, nil, o); err != nil {
		return nil, err
	}
	if w.owner != "" {
		if o, err = c.fromContent(kind, c.manage(kind, nil, contentOf(o), false, w.owner)); err != nil {
			return nil, err
		}
	}
	c.global[kind] = o.GetNamespace() == ""
	return o, c.put(kind, nil, o, w.dryRun)
}

// update makes o the truth, or only its status if it is one. The old object is that of the truth.
func (c *Cluster) update(kind schema.GroupVersionKind, old, o client.Object, w writeOptions) (client.Object, error) {
	switch v := o.GetResourceVersion(); {
	case v == "" && (!isKubernetes(kind) || kind.Group == "coordination.k8s.io"):
		return nil, apierrors.NewInvalid(kind.GroupKind(), o.GetName(), field.ErrorList{field.Invalid(
			field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case v != "" && v != old.GetResourceVersion(), o.GetUID() != "" && o.GetUID() != old.GetUID():
		return nil, conflict(kind, o.GetName())
	}
	before, asked := contentOf(old), contentOf(o)
	switch {
	case w.status:
		whole := runtime.DeepCopyJSON(before)
		copyField(whole, asked, "status")
		copyField(whole, asked, "metadata", "managedFields")
		asked = whole
	case c.hasStatus(old):
		copyField(asked, before, "status")
	}
	for _, fixed := range []string{"resourceVersion", "uid", "generation", "generateName", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds"} {
		copyField(asked, before, "metadata", fixed)
	}
	now, err := c.fromContent(kind, asked)
	if err != nil {
		return nil, err
	}
	c.setDefaults(now)
	if err := c.valid(kind, old, now); err != nil {
		return nil, err
	}
	after := contentOf(now)
	if w.owner != "" {
		if now, err = c.fromContent(kind, c.manage(kind, before, after, w.status, w.owner)); err != nil {
			return nil, err
		}
	}
	fields := now.GetManagedFields()
	for _, content := range []map[string]any{before, after} {
		unstructured.RemoveNestedField(content, "metadata", "managedFields")
	}
	if sameFields(old.GetManagedFields(), fields) && reflect.DeepEqual(before, after) {
		return old, handlertest.ErrUnchanged
	}
	if old.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0 {
		return now, c.put(kind, old, nil, w.dryRun)
	}
	for _, content := range []map[string]any{before, after} {
		delete(content, "metadata")
		delete(content, "status")
	}
	if hasGeneration(kind) && !reflect.DeepEqual(before, after) {
		now.SetGeneration(old.GetGeneration() + 1)
	}
	return now, c.put(kind, old, now, w.dryRun)
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
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed)
	typed.GetObjectKind().SetGroupVersionKind(kind)
	return typed, err
}

// remove deletes old from the truth, or marks it if it has finalizers, as it gets from the policy.
func (c *Cluster) remove(kind schema.GroupVersionKind, old client.Object,
	policy *metav1.DeletionPropagation, dryRun bool) error {
	finalizers := slices.Clone(old.GetFinalizers())
	with := func(f string) {
		if !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	switch {
	case policy == nil:
	case *policy == metav1.DeletePropagationOrphan:
		with(metav1.FinalizerOrphanDependents)
	case *policy == metav1.DeletePropagationForeground:
		with(metav1.FinalizerDeleteDependents)
	}
	if len(finalizers) == 0 {
		return c.put(kind, old, nil, dryRun)
	}
	if old.GetDeletionTimestamp() != nil && len(finalizers) == len(old.GetFinalizers()) {
		return handlertest.ErrUnchanged
	}
	marked := old.DeepCopyObject().(client.Object)
	marked.SetFinalizers(finalizers)
	if old.GetDeletionTimestamp() == nil {
		marked.SetDeletionTimestamp(&metav1.Time{Time: time.Now().Truncate(time.Second)})
		marked.SetDeletionGracePeriodSeconds(new(int64))
		if g := old.GetGeneration(); g > 0 { // So that GenerationChangedPredicate lets the deletion pass.
			marked.SetGeneration(g + 1)
		}
	}
	return c.put(kind, old, marked, dryRun)
}

// touch makes a new version of an object in the name of somebody else.
func (c *Cluster) touch(kind schema.GroupVersionKind, key types.NamespacedName) {
	old, err := c.get(kind, key)
	if err != nil {
		return
	}
	now := old.DeepCopyObject().(client.Object)
	if c.put(kind, old, now, false) == nil {
		c.scenario.Tell("somebody: writes to %s, and changes nothing", c.text(kind, now))
	}
}

// put makes now the truth instead of old, and shows it to all caches. Old is nil for a new object, and now is
// nil for a deletion. A dry run only asks OnChange.
func (c *Cluster) put(kind schema.GroupVersionKind, old, now client.Object, dryRun bool) error {
	if c.OnChange != nil {
		if err := c.admit(old, now); err != nil {
			return err
		}
	}
	if dryRun {
		return nil
	}
	c.version++
	if c.truth[kind] == nil {
		c.truth[kind] = make(map[types.NamespacedName]client.Object)
	}
	if now == nil {
		delete(c.truth[kind], client.ObjectKeyFromObject(old))
		delete(c.uids, old.GetUID())
	} else {
		now.SetResourceVersion(strconv.Itoa(c.version))
		c.truth[kind][client.ObjectKeyFromObject(now)] = now
		c.uids[now.GetUID()] = true
	}
	if now == nil || now.GetDeletionTimestamp() != nil || old == nil && len(now.GetOwnerReferences()) > 0 {
		c.collectLater()
	}
	c.show(change{kind, old, now})
	c.scenario.Changed()
	return nil
}

// setDefaults calls Default, without the lock.
func (c *Cluster) setDefaults(o client.Object) {
	if c.Default != nil {
		c.mu.Unlock()
		defer c.mu.Lock()
		c.Default(o)
	}
}

// admit calls OnChange, without the lock.
func (c *Cluster) admit(old, now client.Object) error {
	copied := func(o client.Object) client.Object {
		if o == nil {
			return nil
		}
		return o.DeepCopyObject().(client.Object)
	}
	old, now = copied(old), copied(now)
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.OnChange(old, now)
}
