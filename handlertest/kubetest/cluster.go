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
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	// Default, if set, is called with each object that is about to be created or updated, and sets defaults, as
	// an API server does: without them, a reconciler that compares what it wants with what there is writes only
	// once.
	Default func(o client.Object)
	// Types is how Apply merges kinds that are not Kubernetes' own. Nil means that each list is one value, but
	// for finalizers, owner references and the conditions of a status.
	Types managedfields.TypeConverter

	scheme   *runtime.Scheme
	scenario *Scenario // nil if its keys are no requests
	tell     func(format string, args ...any)
	changed  func()
	at       func(after time.Duration, do func())
	began    time.Time

	// guards what follows, and the caches of managers; a change happens at one moment of the run
	mu         sync.Mutex
	truth      map[schema.GroupVersionKind]map[types.NamespacedName]client.Object
	version    int
	uids       map[types.UID]bool               // of what exists
	global     map[schema.GroupVersionKind]bool // kinds whose objects are in no namespace
	managers   []*Manager                       // of the processes that have not crashed
	watchers   []*watcher                       // of clientsets
	log        []logged                         // all changes, for them
	dry        bool                             // a dry run: nothing changes
	collecting map[types.UID]bool               // what the garbage collector has in mind
}

// NewCluster returns an empty cluster for a run of s, with the kinds in scheme.
func NewCluster[K comparable](s *handlertest.Scenario[K], scheme *runtime.Scheme) *Cluster {
	scenario, _ := any(s).(*Scenario)
	return &Cluster{scheme: scheme, scenario: scenario, tell: s.Tell, at: s.At, began: time.Now(),
		uids:   make(map[types.UID]bool),
		truth:  make(map[schema.GroupVersionKind]map[types.NamespacedName]client.Object),
		global: make(map[schema.GroupVersionKind]bool), changed: s.Changed,
		collecting: make(map[types.UID]bool)}
}

// Others returns the client of somebody else, for Scenario.At, Sometime, Check, Always and Measure: its calls
// take no time and do not fail by themselves.
func (c *Cluster) Others() client.Client { return &kubeClient{cluster: c} }

// Create creates an object in the name of somebody else, with the status that it has. It panics if that
// fails.
func (c *Cluster) Create(o client.Object) {
	_, err := (&kubeClient{cluster: c}).createWhole(background, o)
	must(err)
}

// Delete deletes an object in the name of somebody else: if it has finalizers, it is only marked. It does
// nothing if the object does not exist.
func (c *Cluster) Delete(o client.Object) {
	must(client.IgnoreNotFound(c.Others().Delete(background, o)))
}

// Change changes the object with the name and kind of o in the name of somebody else, its status included. An
// object that does not exist is left alone.
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
		status.SetResourceVersion(now.GetResourceVersion())
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

// create makes o an object of the truth, and returns it as it is there. Without an owner, its fields have
// theirs already.
func (c *Cluster) create(kind schema.GroupVersionKind, o client.Object, owner string) (client.Object, error) {
	if o.GetResourceVersion() != "" {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500,
			Message: "resourceVersion should not be set on objects to be created"}}
	}
	content := contentOf(o)
	if c.hasStatus(o) {
		delete(content, "status")
	}
	o, err := c.fromContent(kind, content)
	if err != nil {
		return nil, err
	}
	if base := o.GetGenerateName(); o.GetName() == "" && base != "" {
		o.SetName(base[:min(len(base), 58)] + strconv.Itoa(c.version+1))
	}
	if _, err := c.get(kind, client.ObjectKeyFromObject(o)); err == nil {
		return nil, apierrors.NewAlreadyExists(resource(kind), o.GetName())
	}
	o.SetUID(types.UID("uid-" + strconv.Itoa(c.version+1)))
	if o.SetGeneration(0); hasGeneration(kind) {
		o.SetGeneration(1)
	}
	o.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	o.SetDeletionTimestamp(nil)
	if c.Default != nil {
		c.Default(o)
	}
	if err := c.valid(kind, nil, o); err != nil {
		return nil, err
	}
	if owner != "" {
		if o, err = c.fromContent(kind, c.manage(kind, nil, contentOf(o), false, owner)); err != nil {
			return nil, err
		}
	}
	c.global[kind] = o.GetNamespace() == ""
	return o, c.put(kind, nil, o)
}

// update makes o the truth, or only its status if it is one. The old object is that of the truth.
func (c *Cluster) update(kind schema.GroupVersionKind, old, o client.Object, h how) (client.Object, error) {
	switch v := o.GetResourceVersion(); {
	case v == "" && (!isKubernetes(kind) || kind.Group == "coordination.k8s.io"):
		return nil, apierrors.NewInvalid(kind.GroupKind(), o.GetName(), field.ErrorList{field.Invalid(
			field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case v != "" && v != old.GetResourceVersion(), o.GetUID() != "" && o.GetUID() != old.GetUID():
		return nil, conflict(kind, o.GetName())
	}
	before, asked := contentOf(old), contentOf(o)
	switch {
	case h.status:
		whole := runtime.DeepCopyJSON(before)
		copyField(whole, asked, "status")
		copyField(whole, asked, "metadata", "managedFields")
		asked = whole
	case c.hasStatus(old):
		copyField(asked, before, "status")
	}
	now, err := c.fromContent(kind, asked)
	if err != nil {
		return nil, err
	}
	now.SetResourceVersion(old.GetResourceVersion())
	now.SetUID(old.GetUID())
	now.SetGeneration(old.GetGeneration())
	now.SetGenerateName(old.GetGenerateName())
	now.SetDeletionTimestamp(old.GetDeletionTimestamp())
	now.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	now.SetCreationTimestamp(old.GetCreationTimestamp())
	if c.Default != nil {
		c.Default(now)
	}
	if err := c.valid(kind, old, now); err != nil {
		return nil, err
	}
	after := contentOf(now)
	if h.owner != "" {
		if now, err = c.fromContent(kind, c.manage(kind, before, after, h.status, h.owner)); err != nil {
			return nil, err
		}
	}
	fields := now.GetManagedFields()
	for _, content := range []map[string]any{before, after} {
		unstructured.RemoveNestedField(content, "metadata", "managedFields")
	}
	if sameFields(old.GetManagedFields(), fields) && reflect.DeepEqual(before, after) {
		return old, handlertest.ErrUnchanged
	}
	if old.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0 {
		return now, c.put(kind, old, nil)
	}
	for _, content := range []map[string]any{before, after} {
		delete(content, "metadata")
		delete(content, "status")
	}
	if hasGeneration(kind) && !reflect.DeepEqual(before, after) {
		now.SetGeneration(old.GetGeneration() + 1)
	}
	return now, c.put(kind, old, now)
}

// copyField makes a field of into what it is in from.
func copyField(into, from map[string]any, path ...string) {
	unstructured.RemoveNestedField(into, path...)
	if value, found, _ := unstructured.NestedFieldCopy(from, path...); found {
		_ = unstructured.SetNestedField(into, value, path...)
	}
}

// contentOf returns the content of an object, which shares nothing with it.
func contentOf(o client.Object) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return runtime.DeepCopyJSON(u.Object)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(fmt.Sprintf("kubetest: %T has no JSON: %v", o, err))
	}
	return content
}

// fromContent returns an object of the type that the scheme has for its kind.
func (c *Cluster) fromContent(kind schema.GroupVersionKind, content map[string]any) (client.Object, error) {
	known, err := c.scheme.New(kind)
	if err != nil {
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(kind)
		return u, nil
	}
	typed := known.(client.Object)
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed)
	typed.GetObjectKind().SetGroupVersionKind(kind)
	return typed, err
}

// remove deletes old from the truth, or marks it if it has finalizers, as it gets from the policy.
func (c *Cluster) remove(kind schema.GroupVersionKind, old client.Object,
	policy *metav1.DeletionPropagation) error {
	finalizers := slices.Clone(old.GetFinalizers())
	with := func(f string) {
		if !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	switch {
	case policy == nil:
	case *policy == metav1.DeletePropagationOrphan:
		with(metav1.FinalizerOrphanDependents)
	case *policy == metav1.DeletePropagationForeground:
		with(metav1.FinalizerDeleteDependents)
	}
	if len(finalizers) == 0 {
		return c.put(kind, old, nil)
	}
	if old.GetDeletionTimestamp() != nil && len(finalizers) == len(old.GetFinalizers()) {
		return handlertest.ErrUnchanged
	}
	marked := old.DeepCopyObject().(client.Object)
	marked.SetFinalizers(finalizers)
	if old.GetDeletionTimestamp() == nil {
		marked.SetDeletionTimestamp(&metav1.Time{Time: time.Now().Truncate(time.Second)})
		marked.SetDeletionGracePeriodSeconds(new(int64))
		if g := old.GetGeneration(); g > 0 { // So that GenerationChangedPredicate lets the deletion pass.
			marked.SetGeneration(g + 1)
		}
	}
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

// put makes now the truth instead of old, and shows it to all caches. Old is nil for a new object, and now is
// nil for a deletion.
func (c *Cluster) put(kind schema.GroupVersionKind, old, now client.Object) error {
	if c.OnChange != nil {
		if err := c.admit(old, now); err != nil {
			return err
		}
	}
	if c.dry {
		return nil
	}
	c.version++
	if c.truth[kind] == nil {
		c.truth[kind] = make(map[types.NamespacedName]client.Object)
	}
	if now == nil {
		delete(c.truth[kind], client.ObjectKeyFromObject(old))
		delete(c.uids, old.GetUID())
	} else {
		now.SetResourceVersion(strconv.Itoa(c.version))
		c.truth[kind][client.ObjectKeyFromObject(now)] = now
		c.uids[now.GetUID()] = true
	}
	if now == nil || now.GetDeletionTimestamp() != nil || old == nil && len(now.GetOwnerReferences()) > 0 {
		c.collectLater()
	}
	c.show(kind, old, now)
	c.changed()
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
