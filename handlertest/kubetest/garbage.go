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
		exists := func(r metav1.OwnerReference) bool { return c.uids[r.UID] }
		owners := o.GetOwnerReferences()
		switch {
		case c.truth[kindIn(o)][client.ObjectKeyFromObject(o)] != o: // A step before has changed it.
		case o.GetDeletionTimestamp() != nil:
			c.finishDeletion(o)
		case len(owners) > 0 && !slices.ContainsFunc(owners, exists):
			c.deleteGarbage(o)
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

// finishDeletion does the next step with an owner that is being deleted: as a finalizer says, it orphans the
// dependents, or deletes them first and waits for those that block.
func (c *Cluster) finishDeletion(owner client.Object) {
	uid, finalizer := owner.GetUID(), metav1.FinalizerDeleteDependents
	var dependents, living []client.Object
	blocked := false
	for _, o := range c.all() {
		if ref := refersTo(o, uid); ref != nil {
			dependents = append(dependents, o)
			if o.GetDeletionTimestamp() == nil {
				living = append(living, o)
			}
			blocked = blocked || ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
		}
	}
	switch {
	case slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents):
		finalizer = metav1.FinalizerOrphanDependents
		for _, o := range dependents {
			c.orphan(o, uid)
		}
	case !slices.Contains(owner.GetFinalizers(), finalizer):
		return
	case len(living) > 0:
		for _, o := range dependents {
			if len(o.GetOwnerReferences()) > 1 { // Without owners that exist, it is garbage then.
				c.orphan(o, uid)
			} else {
				c.deleteGarbage(o)
			}
		}
		return
	case blocked:
		return
	}
	now := owner.DeepCopyObject().(client.Object)
	now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return f == finalizer }))
	if len(now.GetFinalizers()) == 0 {
		now = nil
	}
	c.scenario.Tell("is done with what %s owns", textOf(kindIn(owner), owner))
	_ = c.put(kindIn(owner), owner, now, false)
}

// refersTo returns the reference of an object to an owner, or nil.
func refersTo(o client.Object, owner types.UID) *metav1.OwnerReference {
	for _, r := range o.GetOwnerReferences() {
		if r.UID == owner {
			return &r
		}
	}
	return nil
}

func (c *Cluster) deleteGarbage(o client.Object) {
	if err := c.remove(kindIn(o), o, nil, false); err == nil {
		c.scenario.Tell("deletes %s", textOf(kindIn(o), o))
	}
}

// orphan takes the reference to an owner out of a dependent.
func (c *Cluster) orphan(o client.Object, owner types.UID) {
	now := o.DeepCopyObject().(client.Object)
	now.SetOwnerReferences(slices.DeleteFunc(now.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return r.UID == owner }))
	_ = c.put(kindIn(o), o, now, false)
}
