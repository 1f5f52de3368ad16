package kubetest

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	// Cache is what the program sets as Client.Cache in the options of its manager, if it does: the kinds that
	// its client does not read from the cache, and whether it reads unstructured objects from there. Its Reader
	// is ignored.
	Cache client.CacheOptions

	scheme   *runtime.Scheme
	scenario *Scenario

	// guards what follows, and the caches of managers; a change happens at one moment of the run
	mu       sync.Mutex
	truth    objects
	version  int
	byUID    map[types.UID]client.Object      // all of truth
	global   map[schema.GroupVersionKind]bool // kinds whose objects are in no namespace
	managers []*Manager                       // of the processes that have not crashed
	refusals int                              // of what the garbage collector does
}

// NewCluster returns an empty cluster for a run of s, with the kinds in scheme.
func NewCluster(s *Scenario, scheme *runtime.Scheme) *Cluster {
	c := &Cluster{scheme: scheme, scenario: s, truth: make(objects), byUID: make(map[types.UID]client.Object),
		global: make(map[schema.GroupVersionKind]bool)}
	s.Others("the garbage collector", c.collectGarbage)
	return c
}

// Others returns the client of somebody else, for Scenario.At, Sometime, Check, Always and Measure: its calls
// take no time and do not fail by themselves.
func (c *Cluster) Others() client.Client { return &kubeClient{cluster: c} }

// Create creates an object in the name of somebody else, with the status that it has. It panics if that
// fails.
func (c *Cluster) Create(o client.Object) {
	o = o.DeepCopyObject().(client.Object)
	c.writeWhole(o, func() error { return c.Others().Create(background, o) })
}

// writeWhole calls write, which writes o but for its status, and then writes the status.
func (c *Cluster) writeWhole(o client.Object, write func() error) {
	whole := o.DeepCopyObject().(client.Object)
	must(write())
	if c.hasStatus(c.kindOf(o)) {
		whole.SetName(o.GetName())
		whole.SetResourceVersion(o.GetResourceVersion())
		must(client.IgnoreNotFound(c.Others().Status().Update(background, whole)))
	}
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
	err := c.Others().Get(background, client.ObjectKeyFromObject(o), now)
	if apierrors.IsNotFound(err) {
		return
	}
	must(err)
	change(now)
	c.writeWhole(now, func() error { return c.Others().Update(background, now) })
}

var background = context.Background()

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("kubetest: somebody else's call fails: %v", err))
	}
}
