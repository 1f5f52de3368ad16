package kubetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest"
)

// writeOptions is what a call that writes says, but for the object.
type writeOptions struct {
	verb        string // for the story
	kind        schema.GroupVersionKind
	subresource string // the only one that it writes: "status" or, for the object, ""
	owner       string // of the fields that it sets; "" if they have theirs already
	dryRun      bool
	mustExist   bool      // It fails without an object.
	version     string    // the only one that it is for, or "": somebody may have written before
	uid         types.UID // likewise
}

func newWriteOptions(verb string, dryRun []string, owner string) writeOptions {
	return writeOptions{verb: verb, dryRun: len(dryRun) > 0, owner: owner}
}

// write calls do, which changes the truth and returns the answer, when the time of a call has passed. Old is
// the object that exists, or nil.
func (k *kubeClient) write(ctx context.Context, o client.Object, w writeOptions,
	do func(w writeOptions, old client.Object) (answer client.Object, err error)) error {
	c := k.cluster
	kind, err := k.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	w.kind = kind
	what := w.verb + " "
	if w.dryRun {
		what = "(dry run) " + what
	}
	if w.subresource == "status" {
		what += "the status of "
	} else if w.subresource != "" {
		return unknownSubresource(w.verb, w.subresource)
	}
	what += textOf(kind, o)
	locked := func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		key := client.ObjectKeyFromObject(o)
		if k.manager != nil && w.version != "" && k.manager.Process.Conflict(ctx, what) {
			c.touch(kind, key)
		}
		old := c.truth[kind][key]
		if old == nil && w.mustExist {
			return apierrors.NewNotFound(resource(kind), o.GetName())
		} else if old != nil && isOutdated(old, w.version, w.uid) {
			return conflict(kind, o.GetName())
		}
		answer, err := do(w, old)
		if err == nil && w.dryRun {
			err = handlertest.ErrUnchanged
		}
		if answer == nil || err != nil && !errors.Is(err, handlertest.ErrUnchanged) {
			return err
		}
		return errors.Join(answerWith(o, answer, kind), err)
	}
	if k.manager != nil {
		w.owner = cmp.Or(w.owner, "controller")
		return asAPIError(k.manager.Process.Write(ctx, what, locked))
	}
	w.owner = cmp.Or(w.owner, "somebody")
	err = locked()
	if errors.Is(err, handlertest.ErrUnchanged) {
		return nil
	}
	if err == nil {
		c.scenario.Tell("%s", what)
	}
	return err
}

func unknownSubresource(verb, name string) error {
	return fmt.Errorf("kubetest: nobody %s the subresource %s: there are status and eviction", verb, name)
}

func (k *kubeClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	var options client.CreateOptions
	options.ApplyOptions(opts)
	w := newWriteOptions("creates", options.DryRun, options.FieldManager)
	return k.write(ctx, o, w, func(w writeOptions, _ client.Object) (client.Object, error) {
		return k.cluster.create(w, o)
	})
}

func (k *kubeClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	var options client.UpdateOptions
	options.ApplyOptions(opts)
	return k.update(ctx, o, "", options)
}

func (k *kubeClient) update(ctx context.Context, o client.Object, subresource string,
	options client.UpdateOptions) error {
	w := newWriteOptions("updates", options.DryRun, options.FieldManager)
	w.subresource, w.mustExist = subresource, true
	w.version, w.uid = o.GetResourceVersion(), o.GetUID()
	return k.write(ctx, o, w, func(w writeOptions, old client.Object) (client.Object, error) {
		return k.cluster.update(w, old, o)
	})
}

func (k *kubeClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	w := newWriteOptions("deletes", options.DryRun, "")
	w.mustExist = true
	if p := options.Preconditions; p != nil {
		w.version, w.uid = *cmp.Or(p.ResourceVersion, new(string)), *cmp.Or(p.UID, new(types.UID))
	}
	return k.write(ctx, o, w, func(w writeOptions, old client.Object) (client.Object, error) {
		return nil, k.cluster.remove(w.kind, old, options.PropagationPolicy, w.dryRun)
	})
}

func (k *kubeClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	var options client.DeleteAllOfOptions
	options.ApplyOptions(opts)
	w := newWriteOptions("deletes all", options.DryRun, "")
	return k.write(ctx, o, w, func(w writeOptions, _ client.Object) (client.Object, error) {
		all, err := selected(sorted(k.cluster.truth[w.kind]), options.ListOptions, fieldOf)
		if err != nil {
			return nil, err
		}
		changed := error(handlertest.ErrUnchanged)
		for _, each := range all {
			err := k.cluster.remove(w.kind, each, options.PropagationPolicy, w.dryRun)
			if err == nil {
				changed = nil
			} else if !errors.Is(err, handlertest.ErrUnchanged) {
				return nil, err
			}
		}
		return nil, changed
	})
}
