package kubetest

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// collectDelay is how long the garbage collector takes.
const collectDelay = 10*time.Millisecond + 500*time.Microsecond

// collectLater lets the garbage collector delete what has lost all of its owners.
func (c *Cluster) collectLater() {
	if len(c.garbage()) > 0 || c.version == 0 {
		c.at(time.Since(c.began)+collectDelay, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, g := range c.garbage() {
				if err := c.remove(g.kind, g.old, false); err == nil {
					c.tell("the garbage collector: deletes %s", c.text(g.kind, g.old))
				}
			}
		})
	}
}

// garbage returns the objects that have owners, none of which exists.
func (c *Cluster) garbage() (garbage []change) {
	for _, kind := range c.kinds() {
		for _, o := range sorted(c.truth[kind]) {
			exists := func(r metav1.OwnerReference) bool { return c.uids[r.UID] }
			if refs := o.GetOwnerReferences(); len(refs) > 0 && !slices.ContainsFunc(refs, exists) &&
				o.GetDeletionTimestamp() == nil {
				garbage = append(garbage, change{kind: kind, old: o})
			}
		}
	}
	return garbage
}

// orphan takes an owner out of all references.
func (c *Cluster) orphan(owner types.UID) {
	for _, kind := range c.kinds() {
		for _, o := range sorted(c.truth[kind]) {
			is := func(r metav1.OwnerReference) bool { return r.UID == owner }
			if refs := o.GetOwnerReferences(); slices.ContainsFunc(refs, is) {
				now := o.DeepCopyObject().(client.Object)
				now.SetOwnerReferences(slices.DeleteFunc(slices.Clone(refs), is))
				_ = c.put(kind, o, now)
			}
		}
	}
}
