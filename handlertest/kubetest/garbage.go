package kubetest

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// collectDelay is how long the garbage collector takes.
const collectDelay = 10*time.Millisecond + 500*time.Microsecond

// collectLater lets the garbage collector do what is to be done now.
func (c *Cluster) collectLater() {
	for _, g := range c.garbage() {
		uid := g.old.GetUID()
		if c.collecting[uid] {
			continue
		}
		c.collecting[uid] = true
		c.scenario.At(time.Since(c.began)+collectDelay, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.collecting, uid)
			for _, now := range c.garbage() {
				if now.old.GetUID() == uid {
					c.collect(now.kind, now.old)
				}
			}
		})
	}
}

// garbage returns the objects whose owners all do not exist, and those that are being deleted and
// whose dependents the collector orphans or deletes first.
func (c *Cluster) garbage() (garbage []change) {
	for _, kind := range c.kinds() {
		for _, o := range sorted(c.truth[kind]) {
			exists := func(r metav1.OwnerReference) bool { return c.uids[r.UID] }
			refs, deleted := o.GetOwnerReferences(), o.GetDeletionTimestamp() != nil
			switch {
			case deleted && slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents),
				deleted && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents) && c.mayGoOn(o.GetUID()),
				!deleted && len(refs) > 0 && !slices.ContainsFunc(refs, exists):
				garbage = append(garbage, change{kind: kind, old: o})
			}
		}
	}
	return garbage
}

// dependents returns the objects that an owner has.
func (c *Cluster) dependents(owner types.UID) (all []change) {
	for _, kind := range c.kinds() {
		for _, o := range sorted(c.truth[kind]) {
			if refersTo(o, owner) != nil {
				all = append(all, change{kind: kind, old: o})
			}
		}
	}
	return all
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

func isLiving(d change) bool { return d.old.GetDeletionTimestamp() == nil }

// mayGoOn reports whether the deletion of an owner in the foreground has a next step.
func (c *Cluster) mayGoOn(owner types.UID) bool {
	all := c.dependents(owner)
	return slices.ContainsFunc(all, isLiving) || !slices.ContainsFunc(all, func(d change) bool {
		blocks := refersTo(d.old, owner).BlockOwnerDeletion
		return blocks != nil && *blocks
	})
}

// collect does the next step with a piece of garbage.
func (c *Cluster) collect(kind schema.GroupVersionKind, o client.Object) {
	if o.GetDeletionTimestamp() == nil {
		c.collectorDeletes(kind, o)
		return
	}
	finalizer := metav1.FinalizerDeleteDependents
	all := c.dependents(o.GetUID())
	if slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		finalizer = metav1.FinalizerOrphanDependents
		for _, d := range all {
			c.orphan(d, o.GetUID())
		}
	} else if slices.ContainsFunc(all, isLiving) {
		for _, d := range all {
			if c.hasOtherOwner(d.old, o.GetUID()) {
				c.orphan(d, o.GetUID())
			} else {
				c.collectorDeletes(d.kind, d.old)
			}
		}
		c.collectLater()
		return
	}
	now := o.DeepCopyObject().(client.Object)
	now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return f == finalizer }))
	if len(now.GetFinalizers()) == 0 {
		now = nil
	}
	c.scenario.Tell("the garbage collector: is done with what %s owns", textOf(kind, o))
	_ = c.put(kind, o, now, false)
}

func (c *Cluster) collectorDeletes(kind schema.GroupVersionKind, o client.Object) {
	if err := c.remove(kind, o, nil, false); err == nil {
		c.scenario.Tell("the garbage collector: deletes %s", textOf(kind, o))
	}
}

// hasOtherOwner reports whether an object has an owner that exists, beside the one with that UID.
func (c *Cluster) hasOtherOwner(o client.Object, owner types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID != owner && c.uids[r.UID]
	})
}

// orphan takes the reference to an owner out of a dependent.
func (c *Cluster) orphan(d change, owner types.UID) {
	now := d.old.DeepCopyObject().(client.Object)
	now.SetOwnerReferences(slices.DeleteFunc(now.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return r.UID == owner }))
	_ = c.put(d.kind, d.old, now, false)
}
