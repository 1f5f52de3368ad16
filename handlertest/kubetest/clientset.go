package kubetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest"
)

// logErrorsOnce takes out the handler of apimachinery's HandleError that makes its caller sleep until a
// millisecond after the last error. It remembers that error's time from the bubble of an earlier run, which
// may be hours later in virtual time, and a worker would sleep for as long. The handler that logs is kept.
var logErrorsOnce = sync.OnceFunc(func() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] })

// Attach makes fake, the Fake of an empty fake clientset of client-go, one of a process, for controllers on
// client-go that run as Scenario.Program: its calls take time, its watches lag, and the process may crash
// after each of its writes. With a nil process it is for others, whose calls take no time, and who may create
// an object with its status.
//
// A fake clientset does not see the contexts of calls: a context that has ended stops no write. Its watches
// do not list anew.
func (c *Cluster) Attach(fake *clienttesting.Fake, p *handlertest.Process) {
	logErrorsOnce()
	k := &kubeClient{cluster: c}
	if p != nil {
		k.manager = &Manager{Process: p}
	}
	kinds := make(map[schema.GroupVersionResource]schema.GroupVersionKind)
	for kind := range c.scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		kinds[plural] = kind
	}
	fake.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		// Invokes holds this lock, which serves its own list of actions, while it calls this function. Nobody
		// must wait for a lock while virtual time passes, and other calls continue.
		action = action.DeepCopy() // What the controller has in hand does not change.
		fake.Unlock()
		defer fake.Lock()
		o, err := k.act(kinds[action.GetResource()], action)
		return true, o, err
	})
	fake.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.watch(kinds[action.GetResource()], action.(clienttesting.WatchAction), p)
		return true, w, err
	})
}

// act carries out an action of a clientset.
func (k *kubeClient) act(kind schema.GroupVersionKind, action clienttesting.Action) (runtime.Object, error) {
	if kind.Kind == "" {
		return nil, fmt.Errorf("kubetest: the scheme of the cluster has no kind for %v", action.GetResource())
	}
	ctx := background
	made, err := k.cluster.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	o, status := made.(client.Object), action.GetSubresource() == "status"
	o.SetNamespace(action.GetNamespace())
	switch a := action.(type) {
	case clienttesting.GetActionImpl:
		return o, k.Get(ctx, types.NamespacedName{Namespace: a.GetNamespace(), Name: a.Name}, o)
	case clienttesting.ListActionImpl:
		return k.listFor(ctx, kind, a)
	case clienttesting.UpdateActionImpl:
		o = a.Object.(client.Object)
		options := a.UpdateOptions
		return o, k.update(ctx, o, k.optionsOf("updates", status, options.DryRun, options.FieldManager))
	case clienttesting.CreateActionImpl:
		o = a.Object.(client.Object)
		o.SetNamespace(a.GetNamespace())
		if k.manager == nil {
			return k.createWhole(ctx, o)
		}
		return o, k.Create(ctx, o)
	case clienttesting.DeleteActionImpl:
		o.SetName(a.Name)
		return o, k.Delete(ctx, o, &client.DeleteOptions{Preconditions: a.DeleteOptions.Preconditions,
			PropagationPolicy: a.DeleteOptions.PropagationPolicy})
	case clienttesting.DeleteCollectionActionImpl:
		of := client.ListOptions{Namespace: a.GetNamespace(), LabelSelector: a.ListRestrictions.Labels}
		return o, k.DeleteAllOf(ctx, o, &client.DeleteAllOfOptions{ListOptions: of})
	case clienttesting.PatchActionImpl:
		o.SetName(a.Name)
		var options client.PatchOptions
		options.Force, options.FieldManager = a.PatchOptions.Force, a.PatchOptions.FieldManager
		return o, k.patch(ctx, o, client.RawPatch(a.PatchType, a.Patch), options, status)
	}
	return nil, fmt.Errorf("kubetest: the cluster does not know how to %s %s", action.GetVerb(),
		action.GetResource().Resource)
}

func (k *kubeClient) listFor(ctx context.Context, kind schema.GroupVersionKind,
	a clienttesting.ListActionImpl) (runtime.Object, error) {
	made, err := k.cluster.scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, err
	}
	list, r := made.(client.ObjectList), a.ListRestrictions
	options := client.ListOptions{Namespace: a.GetNamespace(), LabelSelector: r.Labels}
	if r.Fields != nil && !r.Fields.Empty() {
		options.FieldSelector = r.Fields
	}
	return list, k.List(ctx, list, &options)
}

// watcher is a watch of a process, or of others.
type watcher struct {
	cluster   *Cluster
	process   *handlertest.Process
	kind      schema.GroupVersionKind
	namespace string
	labels    labels.Selector
	result    chan watch.Event
}

// notifyWatches passes a change on to the watches. The caller locks.
func (c *Cluster) notifyWatches(e logged) {
	c.log = append(c.log, e)
	for _, w := range c.watchers {
		w.pass(e)
	}
}

func (c *Cluster) watch(kind schema.GroupVersionKind, action clienttesting.WatchAction,
	p *handlertest.Process) (watch.Interface, error) {
	r := action.GetWatchRestrictions()
	w := &watcher{cluster: c, process: p, kind: kind, namespace: action.GetNamespace(), labels: r.Labels,
		result: make(chan watch.Event, 10_000)}
	since, err := strconv.Atoi(r.ResourceVersion)
	if r.ResourceVersion != "" && err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, w)
	for _, e := range c.log {
		if e.version > since {
			w.pass(e)
		}
	}
	return w, nil
}

func (w *watcher) pass(e logged) {
	o := e.Object.(client.Object)
	if e.kind != w.kind || w.namespace != metav1.NamespaceAll && w.namespace != o.GetNamespace() ||
		w.labels != nil && !w.labels.Matches(labelsOf(o)) {
		return
	}
	send := func() { w.result <- watch.Event{Type: e.Type, Object: o.DeepCopyObject()} }
	if w.process == nil {
		send()
		return
	}
	w.process.Show(e.kind.Kind, e.text(w.cluster), send)
}

// Stop ends the watch. The channel is not closed: a change that is late may still come.
func (w *watcher) Stop() {
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	w.cluster.watchers = slices.DeleteFunc(w.cluster.watchers, func(other *watcher) bool { return other == w })
}

// ResultChan returns the channel of the watch's events.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }
