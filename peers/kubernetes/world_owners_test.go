package main

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owners makes calls with owner references, and deletions of owners that a garbage collector completes.
func (s *script) owners() {
	ctx, c := s.ctx, s.c
	yes := true
	ref := func(o client.Object) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: o.GetName(), UID: o.GetUID()}
	}
	bad := configMap("bad", nil)
	bad.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "w"}}
	s.say("an owner without uid", c.Create(ctx, bad, by))
	one, two := ref(widget("w", nil)), ref(widget("v", nil))
	one.UID, two.UID, one.Controller, two.Controller = "1", "2", &yes, &yes
	bad.OwnerReferences = []metav1.OwnerReference{one, two}
	s.say("two controllers", c.Create(ctx, bad, by))
	for _, policy := range []metav1.DeletionPropagation{"", metav1.DeletePropagationBackground,
		metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		name := "owner" + strings.ToLower(string(policy))
		owner := widget(name, map[string]any{})
		s.say(name, c.Create(ctx, owner, by))
		child := configMap("of-"+name, nil)
		child.OwnerReferences = []metav1.OwnerReference{ref(owner)}
		child.OwnerReferences[0].BlockOwnerDeletion = &yes
		s.say("child of "+name, c.Create(ctx, child, by))
		var opts []client.DeleteOption
		if policy != "" {
			opts = append(opts, client.PropagationPolicy(policy))
		}
		s.awaitCollector("canary-" + name)
		s.say("delete "+name, c.Delete(ctx, owner, opts...))
		gone := func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(owner), owner)) }
		s.await(func() bool {
			err := c.Get(ctx, client.ObjectKeyFromObject(child), child)
			return gone() && (apierrors.IsNotFound(err) || err == nil && len(child.OwnerReferences) == 0)
		})
		s.get("afterwards "+name, widget(name, nil))
		left := configMap(child.Name, nil)
		err := c.Get(ctx, client.ObjectKeyFromObject(left), left)
		left.ManagedFields = nil
		s.say("afterwards its child", err, left)
	}
}

// awaitCollector waits until the garbage collector has seen the children that were created before. It learns
// of objects of a kind in their order: it has seen them when it deletes a later one, whose owner does not exist.
func (s *script) awaitCollector(canary string) {
	m := configMap(canary, nil)
	none := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: types.UID(canary)}
	m.OwnerReferences = []metav1.OwnerReference{none}
	err := s.c.Create(s.ctx, m, by)
	s.await(func() bool {
		return err != nil || apierrors.IsNotFound(s.c.Get(s.ctx, client.ObjectKeyFromObject(m), m))
	})
}
