// Package kubeworld lets package handlertest test a controller on client-go unchanged: it is a cluster whose clientsets lag, conflict and crash.
// Copy it, or take it from here.
//
//	cluster := kubeworld.New(scheme.Scheme, s.Tell)
//	s.Program = func(p *handlertest.Process) {
//		clientset := &fake.Clientset{}
//		cluster.Attach(&clientset.Fake, p)
//		run(p.Context(), clientset) // the controller, with its informers and queues
//	}
package kubeworld

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/keyedqueue/workqueue/handlertest"
)

// Cluster has the truth of one run: the objects, with their resource versions. Unlike the fake clientsets of client-go it refuses an update of
// an old resource version, counts generations, keeps spec and status apart, and a watch begins at the version that it is asked for. An object with
// finalizers only gets a deletionTimestamp when it is deleted, and goes with the last of them.
type Cluster struct {
	react clienttesting.ReactionFunc // reads and writes the objects
	tell  func(format string, args ...any)

	mu      sync.Mutex // guards what follows; held during a write
	tracker clienttesting.ObjectTracker
	version int
	log     []event
	watches map[*watcher]struct{}
}

// event is a change of an object.
type event struct {
	watch.Event
	resource  schema.GroupVersionResource
	namespace string
	version   int
}

// HandleError of apimachinery makes its caller sleep until a millisecond after the last error. It remembers that error's time from the bubble of
// an earlier run, which may be hours later in virtual time, and a worker would sleep for as long. Only the handler that logs is kept.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// New returns an empty cluster for objects of the types in scheme. What others do goes to tell, which is [handlertest.Scenario.Tell].
func New(scheme *runtime.Scheme, tell func(format string, args ...any)) *Cluster {
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	return &Cluster{react: clienttesting.ObjectReaction(tracker), tell: tell, tracker: tracker, watches: make(map[*watcher]struct{})}
}

// Attach makes fake, the Fake of an empty fake clientset, one of a process: its calls take time, its watches lag, and the process may crash after
// each of its writes. With a nil process it is for others, whose calls take no time.
func (c *Cluster) Attach(fake *clienttesting.Fake, p *handlertest.Process) {
	fake.AddReactor("*", "*", func(action clienttesting.Action) (handled bool, o runtime.Object, err error) {
		do := func() error {
			handled, o, err = c.do(action.DeepCopy()) // What the controller has in hand does not change.
			if o != nil {
				o = o.DeepCopyObject()
			}
			return err
		}
		// Invokes holds this lock, which serves its own list of actions, while it calls this function. Nobody must wait for a lock
		// while virtual time passes, and other calls go on meanwhile.
		fake.Unlock()
		defer fake.Lock()
		verb := action.GetVerb()
		switch {
		case p == nil:
			if _ = do(); verb != "get" && verb != "list" && err == nil {
				c.tell("somebody: %s", describe(action))
			}
			if err == handlertest.ErrUnchanged {
				err = nil
			}
		case verb == "get" || verb == "list":
			err = p.Read(context.Background(), do)
		default:
			err = p.Write(context.Background(), describe(action), do)
		}
		return true, o, err
	})
	fake.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.watch(action.(clienttesting.WatchAction), p)
		return true, w, err
	})
}

// describe describes a write for the story.
func describe(action clienttesting.Action) string {
	name, what := "", action.GetResource().Resource
	switch a := action.(type) {
	case clienttesting.CreateAction: // An update is one, too.
		if o, err := meta.Accessor(a.GetObject()); err == nil {
			name = o.GetName()
			if v := o.GetResourceVersion(); v != "" {
				name += "@" + v
			}
		}
	case interface{ GetName() string }:
		name = a.GetName()
	}
	if s := action.GetSubresource(); s != "" {
		what += "/" + s
	}
	verb := action.GetVerb() + "s"
	if verb == "patchs" {
		verb = "patches"
	}
	return fmt.Sprintf("%s %s %s", verb, what, name)
}

// do carries out an action at once.
func (c *Cluster) do(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gvr, ns := action.GetResource(), action.GetNamespace()
	switch a := action.(type) {
	case clienttesting.UpdateActionImpl:
		return c.update(a)
	case clienttesting.CreateActionImpl:
		o, err := meta.Accessor(a.Object)
		if err != nil {
			return true, nil, err
		}
		c.version++
		o.SetResourceVersion(strconv.Itoa(c.version))
		o.SetUID(types.UID(o.GetResourceVersion()))
		o.SetGeneration(1)
		if o.GetName() == "" {
			o.SetName(o.GetGenerateName() + o.GetResourceVersion())
		}
		handled, created, err := c.react(a)
		if err == nil {
			c.changed(watch.Added, gvr, ns, created)
		}
		return handled, created, err
	case clienttesting.DeleteActionImpl:
		old, err := c.tracker.Get(gvr, ns, a.Name)
		if err != nil {
			return true, nil, err
		}
		if p := a.DeleteOptions.Preconditions; p != nil {
			o, _ := meta.Accessor(old)
			if p.UID != nil && *p.UID != o.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
				return true, nil, conflict(gvr, a.Name)
			}
		}
		if o, _ := meta.Accessor(old); len(o.GetFinalizers()) > 0 {
			if o.GetDeletionTimestamp() != nil {
				return true, nil, handlertest.ErrUnchanged
			}
			now := metav1.Now()
			o.SetDeletionTimestamp(&now)
			return true, nil, c.store(gvr, ns, old)
		}
		return true, nil, c.remove(gvr, ns, old)
	case clienttesting.PatchActionImpl:
		old, err := c.tracker.Get(gvr, ns, a.Name)
		if err != nil {
			return true, nil, err
		}
		_, patched, err := c.react(a) // It stores what it returns.
		if err != nil {
			return true, nil, err
		}
		if err := c.tracker.Update(gvr, old, ns); err != nil {
			return true, nil, err
		}
		return c.update(clienttesting.NewUpdateSubresourceAction(gvr, a.GetSubresource(), ns, patched))
	}
	handled, o, err := c.react(action)
	if list, listErr := meta.ListAccessor(o); err == nil && listErr == nil {
		list.SetResourceVersion(strconv.Itoa(c.version))
	}
	return handled, o, err
}

func conflict(gvr schema.GroupVersionResource, name string) error {
	return apierrors.NewConflict(gvr.GroupResource(), name, fmt.Errorf("the object has been modified"))
}

// store makes o, which exists, the truth, as a new version.
func (c *Cluster) store(gvr schema.GroupVersionResource, ns string, o runtime.Object) error {
	c.version++
	if a, err := meta.Accessor(o); err == nil {
		a.SetResourceVersion(strconv.Itoa(c.version))
	}
	err := c.tracker.Update(gvr, o, ns)
	if err == nil {
		c.changed(watch.Modified, gvr, ns, o)
	}
	return err
}

// remove deletes o from the truth.
func (c *Cluster) remove(gvr schema.GroupVersionResource, ns string, o runtime.Object) error {
	a, err := meta.Accessor(o)
	if err == nil {
		err = c.tracker.Delete(gvr, ns, a.GetName())
	}
	if err == nil {
		c.version++
		c.changed(watch.Deleted, gvr, ns, o)
	}
	return err
}

// update changes the status of an object, or all but its status. An object that was deleted goes with its last finalizer.
func (c *Cluster) update(a clienttesting.UpdateActionImpl) (bool, runtime.Object, error) {
	gvr, ns := a.GetResource(), a.GetNamespace()
	o, err := meta.Accessor(a.Object)
	if err != nil {
		return true, nil, err
	}
	old, err := c.tracker.Get(gvr, ns, o.GetName())
	if err != nil {
		return true, nil, err
	}
	was, _ := meta.Accessor(old)
	if v := o.GetResourceVersion(); v != "" && v != was.GetResourceVersion() {
		return true, nil, conflict(gvr, o.GetName())
	}
	before, err1 := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	after, err2 := runtime.DefaultUnstructuredConverter.ToUnstructured(a.Object)
	if err1 != nil || err2 != nil {
		return true, nil, fmt.Errorf("%v, %v", err1, err2)
	}
	if a.GetSubresource() == "status" {
		status := after["status"]
		after = runtime.DeepCopyJSON(before)
		after["status"] = status
	} else if status, ok := before["status"]; ok {
		after["status"] = status
	}
	updated := reflect.New(reflect.TypeOf(old).Elem()).Interface().(runtime.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after, updated); err != nil {
		return true, nil, err
	}
	now, _ := meta.Accessor(updated)
	now.SetResourceVersion(was.GetResourceVersion())
	now.SetUID(was.GetUID())
	now.SetGeneration(was.GetGeneration())
	now.SetDeletionTimestamp(was.GetDeletionTimestamp())
	if reflect.DeepEqual(old, updated) {
		return true, updated, handlertest.ErrUnchanged
	}
	if now.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0 {
		return true, updated, c.remove(gvr, ns, updated)
	}
	if !reflect.DeepEqual(before["spec"], after["spec"]) {
		now.SetGeneration(was.GetGeneration() + 1)
	}
	return true, updated, c.store(gvr, ns, updated)
}

// changed passes a change on to the watches.
func (c *Cluster) changed(what watch.EventType, gvr schema.GroupVersionResource, ns string, o runtime.Object) {
	o = o.DeepCopyObject()
	if a, err := meta.Accessor(o); err == nil && what == watch.Deleted {
		a.SetResourceVersion(strconv.Itoa(c.version))
	}
	e := event{watch.Event{Type: what, Object: o}, gvr, ns, c.version}
	c.log = append(c.log, e)
	for w := range c.watches {
		w.pass(e)
	}
}

// watcher is a watch of a process, or of others.
type watcher struct {
	cluster   *Cluster
	process   *handlertest.Process
	resource  schema.GroupVersionResource
	namespace string
	labels    labels.Selector
	result    chan watch.Event
}

func (c *Cluster) watch(action clienttesting.WatchAction, p *handlertest.Process) (watch.Interface, error) {
	r := action.GetWatchRestrictions()
	w := &watcher{cluster: c, process: p, resource: action.GetResource(), namespace: action.GetNamespace(), labels: r.Labels,
		result: make(chan watch.Event, 10_000)}
	since, err := strconv.Atoi(r.ResourceVersion)
	if r.ResourceVersion != "" && err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[w] = struct{}{}
	for _, e := range c.log {
		if e.version > since {
			w.pass(e)
		}
	}
	return w, nil
}

func (w *watcher) pass(e event) {
	o, err := meta.Accessor(e.Object)
	if err != nil || e.resource != w.resource || w.namespace != metav1.NamespaceAll && w.namespace != e.namespace ||
		w.labels != nil && !w.labels.Matches(labels.Set(o.GetLabels())) {
		return
	}
	send := func() {
		w.result <- watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
	}
	if w.process == nil {
		send()
		return
	}
	what := fmt.Sprintf("%s %s@%s", e.resource.Resource, o.GetName(), o.GetResourceVersion())
	if e.Type == watch.Deleted {
		what = "the end of " + what
	}
	w.process.Show(e.resource.Resource, what, send)
}

// Stop is that of [watch.Interface]. The channel is not closed: a change that is late may still come.
func (w *watcher) Stop() {
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	delete(w.cluster.watches, w)
}

// ResultChan is that of [watch.Interface].
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }
