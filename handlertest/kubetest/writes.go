package kubetest

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest"
)

// writeOptions are what the options of a write say.
type writeOptions struct {
	verb       string
	dryRun     bool
	owner      string // of the fields
	status     bool   // It writes the status, and nothing else.
	oneVersion bool   // It is for one version of the object: somebody may have written before.
}

func (k *kubeClient) optionsOf(verb string, status bool, dryRun []string, owner string) writeOptions {
	if status {
		verb += " the status of"
	}
	if len(dryRun) > 0 {
		verb = "(dry run) " + verb
	}
	by := "somebody"
	if k.manager != nil {
		by = "controller"
	}
	return writeOptions{verb: verb, status: status, dryRun: len(dryRun) > 0, owner: cmp.Or(owner, by)}
}

// write calls do, which changes the truth and returns what the answer is, when the time of a call has passed.
func (k *kubeClient) write(ctx context.Context, o client.Object, w writeOptions,
	do func(kind schema.GroupVersionKind) (client.Object, error)) error {
	kind, err := k.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	what := w.verb + " " + k.cluster.text(kind, o)
	locked := func() error {
		k.cluster.mu.Lock()
		defer k.cluster.mu.Unlock()
		if k.manager != nil && w.oneVersion && k.manager.Process.Conflict(ctx, what) {
			k.cluster.touch(kind, client.ObjectKeyFromObject(o))
		}
		answer, err := do(kind)
		if err == nil && w.dryRun {
			err = handlertest.ErrUnchanged
		}
		if answer == nil || err != nil && !errors.Is(err, handlertest.ErrUnchanged) {
			return err
		}
		return errors.Join(k.cluster.answer(o, answer, kind, false), err)
	}
	if k.manager != nil {
		return failed(k.manager.Process.Write(ctx, what, locked))
	}
	err = locked()
	if errors.Is(err, handlertest.ErrUnchanged) {
		return nil
	}
	if err == nil {
		k.cluster.scenario.Tell("somebody: %s", what)
	}
	return err
}

func (k *kubeClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	var options client.CreateOptions
	options.ApplyOptions(opts)
	w := k.optionsOf("creates", false, options.DryRun, options.FieldManager)
	return k.write(ctx, o, w, func(kind schema.GroupVersionKind) (client.Object, error) {
		return k.cluster.create(kind, o, w)
	})
}

func (k *kubeClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	var options client.UpdateOptions
	options.ApplyOptions(opts)
	return k.update(ctx, o, k.optionsOf("updates", false, options.DryRun, options.FieldManager))
}

func (k *kubeClient) update(ctx context.Context, o client.Object, w writeOptions) error {
	w.oneVersion = o.GetResourceVersion() != ""
	return k.write(ctx, o, w, func(kind schema.GroupVersionKind) (client.Object, error) {
		old, err := k.cluster.get(kind, client.ObjectKeyFromObject(o))
		if err != nil {
			return nil, err
		}
		return k.cluster.update(kind, old, o, w)
	})
}

func (k *kubeClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	p, w := options.Preconditions, k.optionsOf("deletes", false, options.DryRun, "")
	w.oneVersion = p != nil && p.ResourceVersion != nil
	return k.write(ctx, o, w, func(kind schema.GroupVersionKind) (client.Object, error) {
		old, err := k.cluster.get(kind, client.ObjectKeyFromObject(o))
		if err != nil {
			return nil, err
		}
		if p != nil && (p.UID != nil && *p.UID != old.GetUID() ||
			p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()) {
			return nil, conflict(kind, o.GetName())
		}
		return nil, k.cluster.remove(kind, old, options.PropagationPolicy, w.dryRun)
	})
}

func (k *kubeClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	var options client.DeleteAllOfOptions
	options.ApplyOptions(opts)
	w := k.optionsOf("deletes all", false, options.DryRun, "")
	return k.write(ctx, o, w, func(kind schema.GroupVersionKind) (client.Object, error) {
		all, err := k.selected(kind, sorted(k.cluster.truth[kind]), options.ListOptions)
		if err != nil {
			return nil, err
		}
		changed := error(handlertest.ErrUnchanged)
		for _, each := range all {
			err := k.cluster.remove(kind, each, options.PropagationPolicy, w.dryRun)
			if err == nil {
				changed = nil
			} else if !errors.Is(err, handlertest.ErrUnchanged) {
				return nil, err
			}
		}
		return nil, changed
	})
}
