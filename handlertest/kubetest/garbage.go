package kubetest

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// collectGarbage is the garbage collector, a program that reacts to changes. It does one step with each
// object that needs one. Each step is a change, and so leads to the next one.
func (c *Cluster) collectGarbage() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.all() {
		finalizers := o.GetFinalizers()
		switch {
		case c.byUID[o.GetUID()] != o: // A step before has changed it.
		case o.GetDeletionTimestamp() == nil:
			c.collect(o)
		case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
			if c.orphan(c.dependents(o), o.GetUID()) {
				c.removeFinalizer(o, metav1.FinalizerOrphanDependents)
			}
		case isDeletingDependents(o) && !c.isBlocked(o):
			c.removeFinalizer(o, metav1.FinalizerDeleteDependents)
		}
	}
}

// kindIn returns the kind that an object of the truth names.
func kindIn(o client.Object) schema.GroupVersionKind { return o.GetObjectKind().GroupVersionKind() }

// all returns all objects of the truth.
func (c *Cluster) all() (all []client.Object) {
	for _, kind := range c.kinds() {
		all = append(all, sorted(c.truth[kind])...)
	}
	return all
}

// collect deletes an object that has lost its owners. If it has others, they keep it, and the references to
// those that are lost are taken out.
func (c *Cluster) collect(o client.Object) {
	var lost []types.UID // These do not exist, or wait for the end of their dependents.
	kept, awaited := false, false
	for _, ref := range o.GetOwnerReferences() {
		switch owner := c.ownerOf(o, ref); {
		case owner == nil:
			lost = append(lost, ref.UID)
		case isDeletingDependents(owner):
			lost, awaited = append(lost, ref.UID), true
		default:
			kept = true
		}
	}
	switch {
	case len(lost) == 0:
	case kept:
		c.disown(o, lost...)
	case awaited && len(c.dependents(o)) > 0: // Its owner also waits for them.
		foreground := metav1.DeletePropagationForeground
		c.deleteGarbage(o, &foreground)
	default:
		c.deleteGarbage(o, nil)
	}
}

// ownerOf returns the owner to which an object refers, or nil. An object in another namespace is no owner.
func (c *Cluster) ownerOf(o client.Object, ref metav1.OwnerReference) client.Object {
	owner := c.byUID[ref.UID]
	if owner != nil && owner.GetNamespace() != "" && owner.GetNamespace() != o.GetNamespace() {
		return nil
	}
	return owner
}

// isDeletingDependents reports whether an object is being deleted in the foreground.
func isDeletingDependents(o client.Object) bool {
	return o.GetDeletionTimestamp() != nil &&
		slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// dependents returns the objects that refer to an owner.
func (c *Cluster) dependents(owner client.Object) []client.Object {
	return slices.DeleteFunc(c.all(), func(o client.Object) bool { return c.refTo(owner, o) == nil })
}

// refTo returns the reference of an object to an owner, or nil.
func (c *Cluster) refTo(owner, o client.Object) *metav1.OwnerReference {
	for _, ref := range o.GetOwnerReferences() {
		if c.ownerOf(o, ref) == owner {
			return &ref
		}
	}
	return nil
}

// isBlocked reports whether the end of an owner waits for a dependent.
func (c *Cluster) isBlocked(owner client.Object) bool {
	return slices.ContainsFunc(c.all(), func(o client.Object) bool {
		ref := c.refTo(owner, o)
		return ref != nil && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	})
}

// removeFinalizer is the last step with an owner that is being deleted.
func (c *Cluster) removeFinalizer(owner client.Object, finalizer string) {
	now := owner.DeepCopyObject().(client.Object)
	now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return f == finalizer }))
	if len(now.GetFinalizers()) == 0 {
		now = nil
	}
	c.step("is done with what "+textOf(kindIn(owner), owner)+" owns", c.put(kindIn(owner), owner, now, false))
}

func (c *Cluster) deleteGarbage(o client.Object, policy *metav1.DeletionPropagation) {
	c.step("deletes "+textOf(kindIn(o), o), c.remove(kindIn(o), o, policy, false))
}

// orphan takes the reference to an owner out of its dependents, and reports whether it could.
func (c *Cluster) orphan(dependents []client.Object, owner types.UID) bool {
	done := true
	for _, o := range dependents {
		done = c.disown(o, owner) && done
	}
	return done
}

// disown takes the references to owners out of an object.
func (c *Cluster) disown(o client.Object, owners ...types.UID) bool {
	now := o.DeepCopyObject().(client.Object)
	now.SetOwnerReferences(slices.DeleteFunc(now.GetOwnerReferences(),
		func(ref metav1.OwnerReference) bool { return slices.Contains(owners, ref.UID) }))
	return c.step("takes owners out of "+textOf(kindIn(o), o), c.put(kindIn(o), o, now, false))
}

// maxRefusals is how many steps the collector tries again that OnChange has refused. A hook that refuses them
// always would keep the run from coming to rest.
const maxRefusals = 20

// step notes what has become of a step.
func (c *Cluster) step(what string, err error) bool {
	if err == nil {
		c.scenario.Tell("%s", what)
		return true
	}
	c.scenario.Tell("%s: %v", what, err)
	if c.refusals++; c.refusals <= maxRefusals {
		c.scenario.Changed() // It looks at all again.
	}
	return false
}
