package kubetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/keyedqueue/workqueue/handlertest"
)

// Cluster has the truth of one run: the objects, as an API server has them. [NewCluster] makes one.
type Cluster struct {
	// OnChange, if set, is called before each change, of reconcilers and of others: old is nil when an object
	// is created, new when it is gone. It counts, or refuses a change as an admission webhook does, by an
	// error, which is what the caller gets.
	OnChange func(old, new client.Object) error

	scheme   *runtime.Scheme
	scenario *Scenario // nil if its keys are no requests
	tell     func(format string, args ...any)
	at       func(after time.Duration, do func())
	began    time.Time

	// guards what follows, and the caches of managers; a change happens at one moment of the run
	mu       sync.Mutex
	truth    map[schema.GroupVersionKind]map[types.NamespacedName]client.Object
	version  int
	uids     map[types.UID]bool                       // of what exists
	global   map[schema.GroupVersionKind]bool         // kinds whose objects are in no namespace
	managers []*Manager                               // of the processes that have not crashed
	watchers []*watcher                               // of clientsets
	log      []logged                                 // all changes, for them
	fields   map[types.UID]map[string]map[string]bool // the fields that each owner has applied
}

// NewCluster returns an empty cluster for a run of s, with the kinds in scheme.
func NewCluster[K comparable](s *handlertest.Scenario[K], scheme *runtime.Scheme) *Cluster {
	scenario, _ := any(s).(*Scenario)
	return &Cluster{scheme: scheme, scenario: scenario, tell: s.Tell, at: s.At, began: time.Now(),
		uids:   make(map[types.UID]bool),
		truth:  make(map[schema.GroupVersionKind]map[types.NamespacedName]client.Object),
		global: make(map[schema.GroupVersionKind]bool),
		fields: make(map[types.UID]map[string]map[string]bool)}
}

// Others returns the client of somebody else, for Scenario.At, Sometime, Check, Always and Measure: its calls
// take no time and do not fail by themselves.
func (c *Cluster) Others() client.Client { return &kubeClient{cluster: c} }

// Create creates an object in the name of somebody else, with the status that it has. It panics if that
// fails.
func (c *Cluster) Create(o client.Object) {
	o = o.DeepCopyObject().(client.Object)
	status := o.DeepCopyObject().(client.Object)
	must(c.Others().Create(background, o))
	if c.hasStatus(o) {
		status.SetResourceVersion("")
		must(c.Others().Status().Update(background, status))
	}
}

// Delete deletes an object in the name of somebody else: if it has finalizers, it is only marked. It does
// nothing if there is none.
func (c *Cluster) Delete(o client.Object) {
	must(client.IgnoreNotFound(c.Others().Delete(background, o)))
}

// Change changes the object with the name and kind of o in the name of somebody else, its status included,
// and does nothing if there is none.
func Change[T client.Object](c *Cluster, o T, change func(o T)) {
	now := o.DeepCopyObject().(T)
	if err := c.Others().Get(background, client.ObjectKeyFromObject(o), now); apierrors.IsNotFound(err) {
		return
	} else {
		must(err)
	}
	change(now)
	status := now.DeepCopyObject().(T)
	must(c.Others().Update(background, now))
	if c.hasStatus(now) {
		status.SetResourceVersion("")
		must(client.IgnoreNotFound(c.Others().Status().Update(background, status)))
	}
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("kubetest: somebody else's call fails: %v", err))
	}
}

func (c *Cluster) kindOf(o runtime.Object) schema.GroupVersionKind {
	kind, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		panic(fmt.Sprintf("kubetest: the scheme of the cluster: %v", err))
	}
	return kind
}

// hasStatus reports whether objects like o have a status subresource.
func (c *Cluster) hasStatus(o client.Object) bool {
	if u, ok := o.(*unstructured.Unstructured); ok {
		typed, err := c.scheme.New(u.GroupVersionKind())
		if err != nil {
			return true
		}
		o = typed.(client.Object)
	}
	_, ok := reflect.TypeOf(o).Elem().FieldByName("Status")
	return ok
}

// text names an object for the story.
func (c *Cluster) text(kind schema.GroupVersionKind, o client.Object) string {
	name := strings.TrimPrefix(o.GetNamespace()+"/", "/") + cmp.Or(o.GetName(), o.GetGenerateName()+"*")
	if v := o.GetResourceVersion(); v != "" {
		name += "@" + v
	}
	return kind.Kind + " " + name
}

func sorted(objects map[types.NamespacedName]client.Object) []client.Object {
	return slices.SortedFunc(maps.Values(objects), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func resource(kind schema.GroupVersionKind) schema.GroupResource {
	return schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}
}

// get returns the object itself, or an error.
func (c *Cluster) get(kind schema.GroupVersionKind, key types.NamespacedName) (client.Object, error) {
	if o := c.truth[kind][key]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(resource(kind), key.Name)
}

func conflict(kind schema.GroupVersionKind, name string) error {
	return apierrors.NewConflict(resource(kind), name, errors.New("the object has been modified"))
}

// create makes o an object of the truth, and returns it as it is there.
func (c *Cluster) create(kind schema.GroupVersionKind, o client.Object) (client.Object, error) {
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	o, err := c.typed(kind, o, nil)
	if err != nil {
		return nil, err
	}
	if o.GetName() == "" {
		o.SetName(o.GetGenerateName() + strconv.Itoa(c.version+1))
	}
	if _, err := c.get(kind, client.ObjectKeyFromObject(o)); err == nil {
		return nil, apierrors.NewAlreadyExists(resource(kind), o.GetName())
	}
	o.SetUID(types.UID("uid-" + strconv.Itoa(c.version+1)))
	o.SetGeneration(1)
	c.global[kind] = o.GetNamespace() == ""
	o.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	o.SetDeletionTimestamp(nil)
	return o, c.put(kind, nil, o)
}

// update makes o the truth, or only its status if it is one. The old object is that of the truth.
func (c *Cluster) update(kind schema.GroupVersionKind, old, o client.Object,
	status bool) (client.Object, error) {
	if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() || o.GetUID() != "" &&
		o.GetUID() != old.GetUID() {
		return nil, conflict(kind, o.GetName())
	}
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return nil, err
	}
	now, err := c.typed(kind, o, func(content map[string]any) map[string]any {
		switch {
		case status:
			whole := runtime.DeepCopyJSON(before)
			delete(whole, "status")
			if value, ok := content["status"]; ok {
				whole["status"] = value
			}
			return whole
		case !c.hasStatus(old):
		default:
			delete(content, "status")
			if value, ok := before["status"]; ok {
				content["status"] = value
			}
		}
		return content
	})
	if err != nil {
		return nil, err
	}
	now.SetResourceVersion(old.GetResourceVersion())
	now.SetUID(old.GetUID())
	now.SetGeneration(old.GetGeneration())
	now.SetGenerateName(old.GetGenerateName())
	now.SetCreationTimestamp(old.GetCreationTimestamp())
	now.SetDeletionTimestamp(old.GetDeletionTimestamp())
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(now)
	if err != nil {
		return nil, err
	}
	if reflect.DeepEqual(before, after) {
		return old, handlertest.ErrUnchanged
	}
	if old.GetDeletionTimestamp() != nil {
		for _, f := range now.GetFinalizers() {
			if !slices.Contains(old.GetFinalizers(), f) {
				return nil, apierrors.NewForbidden(resource(kind), o.GetName(),
					fmt.Errorf("no new finalizers can be added if the object is being deleted"))
			}
		}
		if len(now.GetFinalizers()) == 0 {
			return now, c.put(kind, old, nil)
		}
	}
	for _, content := range []map[string]any{before, after} {
		delete(content, "metadata")
		delete(content, "status")
	}
	if !reflect.DeepEqual(before, after) {
		now.SetGeneration(old.GetGeneration() + 1)
	}
	return now, c.put(kind, old, now)
}

// typed returns a copy of o as an object of the type that the scheme has for its kind, after edit has changed
// its content.
func (c *Cluster) typed(kind schema.GroupVersionKind, o client.Object,
	edit func(map[string]any) map[string]any) (client.Object, error) {
	if edit == nil {
		edit = func(content map[string]any) map[string]any {
			if c.hasStatus(o) {
				delete(content, "status")
			}
			return content
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	return c.fromContent(kind, edit(runtime.DeepCopyJSON(content)))
}

func (c *Cluster) fromContent(kind schema.GroupVersionKind, content map[string]any) (client.Object, error) {
	var typed client.Object = &unstructured.Unstructured{}
	if known, err := c.scheme.New(kind); err == nil {
		typed = known.(client.Object)
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed)
	typed.GetObjectKind().SetGroupVersionKind(kind)
	return typed, err
}

// remove deletes old from the truth, or marks it if it has finalizers.
func (c *Cluster) remove(kind schema.GroupVersionKind, old client.Object, orphan bool) error {
	if len(old.GetFinalizers()) == 0 {
		if orphan {
			c.orphan(old.GetUID())
		}
		return c.put(kind, old, nil)
	}
	if old.GetDeletionTimestamp() != nil {
		return handlertest.ErrUnchanged
	}
	marked := old.DeepCopyObject().(client.Object)
	marked.SetDeletionTimestamp(&metav1.Time{Time: time.Now().Truncate(time.Second)})
	return c.put(kind, old, marked)
}

// touch makes a new version of an object in the name of somebody else.
func (c *Cluster) touch(kind schema.GroupVersionKind, key types.NamespacedName) {
	old, err := c.get(kind, key)
	if err != nil {
		return
	}
	now := old.DeepCopyObject().(client.Object)
	if c.put(kind, old, now) == nil {
		c.tell("somebody: writes to %s, and changes nothing", c.text(kind, now))
	}
}

// put makes now the truth instead of old, one of which may be nil, and shows it to all caches.
func (c *Cluster) put(kind schema.GroupVersionKind, old, now client.Object) error {
	if c.OnChange != nil {
		if err := c.admit(old, now); err != nil {
			return err
		}
	}
	c.version++
	if c.truth[kind] == nil {
		c.truth[kind] = make(map[types.NamespacedName]client.Object)
	}
	if now == nil {
		delete(c.truth[kind], client.ObjectKeyFromObject(old))
		delete(c.uids, old.GetUID())
		delete(c.fields, old.GetUID())
		c.collectLater()
	} else {
		now.SetResourceVersion(strconv.Itoa(c.version))
		c.truth[kind][client.ObjectKeyFromObject(now)] = now
		c.uids[now.GetUID()] = true
		if old == nil && len(now.GetOwnerReferences()) > 0 {
			c.collectLater()
		}
	}
	c.show(kind, old, now)
	return nil
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

func (c *Cluster) kinds() []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(c.truth),
		func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
}
