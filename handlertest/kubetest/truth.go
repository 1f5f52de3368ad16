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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest"
)

// What an API server does at one moment to the objects that it keeps. The callers hold the cluster's mu.

// isOutdated reports whether a write for a version or a UID is not for the object that there is.
func isOutdated(old client.Object, version string, uid types.UID) bool {
	return version != "" && version != old.GetResourceVersion() || uid != "" && uid != old.GetUID()
}

func conflict(kind schema.GroupVersionKind, name string) error {
	return apierrors.NewConflict(resource(kind), name, errors.New("the object has been modified"))
}

// create makes o an object of the truth, and returns it as it is there.
func (c *Cluster) create(w writeOptions, o client.Object) (client.Object, error) {
	if o.GetResourceVersion() != "" {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500,
			Message: "resourceVersion should not be set on objects to be created"}}
	}
	if _, known := c.global[w.kind]; o.GetNamespace() == "" && !c.isGlobal(w.kind) &&
		(known || isKubernetes(w.kind)) {
		return nil, errors.New("an empty namespace may not be set during creation")
	}
	content := contentOf(o)
	if c.hasStatus(w.kind) {
		delete(content, "status")
	}
	o, err := c.fromContent(w.kind, content)
	if err != nil {
		return nil, err
	}
	if base := o.GetGenerateName(); o.GetName() == "" && base != "" {
		o.SetName(base[:min(len(base), 58)] + strconv.Itoa(c.version+1))
	}
	if c.truth[w.kind][client.ObjectKeyFromObject(o)] != nil {
		return nil, apierrors.NewAlreadyExists(resource(w.kind), o.GetName())
	}
	o.SetUID(types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012[1]d", c.version+1)))
	if o.SetGeneration(0); hasGeneration(w.kind) {
		o.SetGeneration(1)
	}
	o.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	o.SetDeletionTimestamp(nil)
	c.setDefaults(o)
	if err := valid(w.kind, nil, o); err != nil {
		return nil, err
	}
	if w.owner != "" {
		o.SetManagedFields(managedFields(w, nil, contentOf(o)))
	}
	err = c.put(w.kind, nil, o, w.dryRun)
	if _, known := c.global[w.kind]; err == nil && !known && !w.dryRun {
		c.global[w.kind] = o.GetNamespace() == ""
	}
	return o, err
}

// update makes o the truth, or only its status if the write says so. The truth has the old object.
func (c *Cluster) update(w writeOptions, old, o client.Object) (client.Object, error) {
	switch {
	case o.GetResourceVersion() == "" && (!isKubernetes(w.kind) || w.kind.Group == "coordination.k8s.io"):
		return nil, apierrors.NewInvalid(w.kind.GroupKind(), o.GetName(), field.ErrorList{field.Invalid(
			field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case isOutdated(old, o.GetResourceVersion(), o.GetUID()):
		return nil, conflict(w.kind, o.GetName())
	}
	before, asked := contentOf(old), contentOf(o)
	if w.subresource == "status" {
		whole := runtime.DeepCopyJSON(before)
		copyField(whole, asked, "status")
		copyField(whole, asked, "metadata", "managedFields")
		asked = whole
	} else if c.hasStatus(w.kind) {
		copyField(asked, before, "status")
	}
	for _, fixed := range []string{"resourceVersion", "uid", "generation", "generateName", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds"} {
		copyField(asked, before, "metadata", fixed)
	}
	now, err := c.fromContent(w.kind, asked)
	if err != nil {
		return nil, err
	}
	c.setDefaults(now)
	if err := valid(w.kind, old, now); err != nil {
		return nil, err
	}
	if w.owner != "" {
		now.SetManagedFields(managedFields(w, before, contentOf(now)))
	}
	if sameFields(old.GetManagedFields(), now.GetManagedFields()) {
		now.SetManagedFields(old.GetManagedFields()) // Their times differ.
	}
	after := contentOf(now)
	if reflect.DeepEqual(before, after) {
		return old, handlertest.ErrUnchanged
	}
	if old.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0 {
		return now, c.put(w.kind, old, nil, w.dryRun)
	}
	for _, content := range []map[string]any{before, after} {
		delete(content, "metadata")
		delete(content, "status")
	}
	if hasGeneration(w.kind) && !reflect.DeepEqual(before, after) {
		now.SetGeneration(old.GetGeneration() + 1)
	}
	return now, c.put(w.kind, old, now, w.dryRun)
}

// remove deletes old from the truth, or marks it if it has finalizers, as it gets from the policy.
func (c *Cluster) remove(kind schema.GroupVersionKind, old client.Object,
	policy *metav1.DeletionPropagation, dryRun bool) error {
	finalizers := slices.Clone(old.GetFinalizers())
	if policy != nil && *policy != metav1.DeletePropagationBackground {
		f := metav1.FinalizerDeleteDependents
		if *policy == metav1.DeletePropagationOrphan {
			f = metav1.FinalizerOrphanDependents
		}
		if !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
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
	old := c.truth[kind][key]
	if old == nil {
		return
	}
	now := old.DeepCopyObject().(client.Object)
	if c.put(kind, old, now, false) == nil {
		c.scenario.Tell("writes to %s, and changes nothing", textOf(kind, now))
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
		delete(c.byUID, old.GetUID())
	} else {
		now.SetResourceVersion(strconv.Itoa(c.version))
		c.truth[kind][client.ObjectKeyFromObject(now)] = now
		c.byUID[now.GetUID()] = now
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
