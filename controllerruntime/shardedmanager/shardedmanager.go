// Package shardedmanager makes the controllers of a manager of controller-runtime work on all replicas of a
// program: package sharding divides their keys.
//
//	group, err := shardedmanager.New(mgr, shardedmanager.Options{
//		Namespace: "my-system", Member: sharding.Config{Group: "website-controller"}})
//	// …
//	err = group.Add(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}),
//		shardedmanager.Controller{List: &corev1.ConfigMapList{}, Reconciler: r})
//	// …
//	err = group.Start(ctx) // in place of mgr.Start
//
// The program examples/sharded-manager is a whole one. A manager with a leader election may have other
// controllers beside these, which the leader alone runs.
//
// A sharded controller's NewQueue is the group's, so controllerruntime.WrapReconciler does not work with it:
// no page shows the controller, its calls have no causes and no UntilAdded, and ReadYourWrites cannot hold
// its requests.
package shardedmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/sharding/shardingprom"
)

// Options configure [New].
type Options struct {
	// Member configures this process's part. Its Group is required. Its Queues must be empty: they are the
	// controllers.
	Member sharding.Config
	// Namespace is where the Leases are. Their client is one of its own, made from the manager's config.
	Namespace string
	// Store keeps the records in place of Leases in Namespace.
	Store sharding.Store
	// Registerer gets the metrics of package shardingprom. Nil means controller-runtime's registry.
	Registerer prometheus.Registerer
	// LeaveTimeout is how long Start waits for the handover at the end. Zero means ten seconds. The pod's grace
	// period must be longer than this and the manager's GracefulShutdownTimeout together.
	LeaveTimeout time.Duration
}

// Controller is a controller of a [Group].
type Controller struct {
	// Name is the name of the controller, and of its queue in the group: keep it from one version of the
	// program to the next. Empty means the kind of what is listed, in lower case.
	Name string
	// List is an empty list of the objects whose keys are reconciled: those of the builder's For. Required.
	List       client.ObjectList
	Reconciler reconcile.Reconciler
	// Options are the controller's. NewQueue and NeedLeaderElection must be unset.
	Options controller.Options
}

// Group is the part of a manager that shares its work with other replicas. Call all methods but Member from
// one goroutine.
type Group struct {
	mgr         manager.Manager
	options     Options
	controllers []*shardedController
	ended       chan struct{} // closed when joining has failed or the manager ends
	joined      chan struct{} // closed when member is set

	mu     sync.Mutex // guards what follows
	member *sharding.Member
	queues map[string]shardingprom.Queue
	err    error // why a queue could not be made
}

// New returns a group for the manager, which must not have been started.
func New(mgr manager.Manager, o Options) (*Group, error) {
	if len(o.Member.Queues) > 0 {
		return nil, errors.New("shardedmanager: Member.Queues must be empty: they are the group's controllers")
	}
	if o.Store == nil {
		leases, err := coordination.NewForConfig(mgr.GetConfig())
		if err != nil {
			return nil, fmt.Errorf("shardedmanager: %w", err)
		}
		if o.Namespace == "" {
			return nil, errors.New("shardedmanager: Options.Namespace is required, the namespace of the Leases")
		}
		o.Store = sharding.Leases(leases, o.Namespace)
	}
	if o.Registerer == nil {
		o.Registerer = metrics.Registry
	}
	o.LeaveTimeout = cmp.Or(o.LeaveTimeout, 10*time.Second)
	g := &Group{mgr: mgr, options: o, ended: make(chan struct{}), joined: make(chan struct{}),
		queues: make(map[string]shardingprom.Queue)}
	return g, mgr.Add(joiner{g})
}

// Add completes the builder with a controller whose keys are divided. Its reconciler's context ends when
// another replica may get the key, and has a [sharding.Fence]. Call it before Start.
func (g *Group) Add(b *builder.Builder, c Controller) error {
	if c.List == nil || c.Reconciler == nil {
		return errors.New("shardedmanager: a Controller needs a List and a Reconciler")
	}
	if c.Options.NewQueue != nil || c.Options.NeedLeaderElection != nil {
		return errors.New("shardedmanager: the Options of a Controller have a NewQueue or NeedLeaderElection: " +
			"a sharded queue runs on all replicas")
	}
	if c.Name == "" {
		gvk, err := apiutil.GVKForObject(c.List, g.mgr.GetScheme())
		if err != nil {
			return fmt.Errorf("shardedmanager: %w", err)
		}
		c.Name = strings.ToLower(strings.TrimSuffix(gvk.Kind, "List"))
	}
	if slices.ContainsFunc(g.controllers, func(other *shardedController) bool { return other.Name == c.Name }) {
		return fmt.Errorf("shardedmanager: two controllers are called %q: set Controller.Name", c.Name)
	}
	s := &shardedController{Controller: c, group: g, made: make(chan struct{})}
	g.controllers = append(g.controllers, s)
	// A controller that waited to be the leader would hold slots that nobody handles meanwhile.
	c.Options.NewQueue, c.Options.NeedLeaderElection = s.newQueue, new(bool)
	return b.Named(c.Name).WithOptions(c.Options).Complete(s)
}

// Member returns the member, or nil before it has joined.
func (g *Group) Member() *sharding.Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.member
}

// Start starts the manager, joins when its caches are filled, and blocks until ctx is done and the
// reconcilers have returned, for the manager's GracefulShutdownTimeout at most: meanwhile no replica works on
// this one's other keys. Then it hands over what this replica holds. Its error is [sharding.ErrRestored] if
// the program must start anew. Call it in place of the manager's Start.
func (g *Group) Start(ctx context.Context) error {
	err := g.mgr.Start(ctx)
	m := g.Member()
	if m == nil {
		return err
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.options.LeaveTimeout)
	defer cancel()
	if left := m.Leave(leaving); left != nil && !errors.Is(err, left) {
		err = errors.Join(err, left)
	}
	return err
}

// joiner joins when the manager has started. It is no manager.RunnableFunc, because with LeaderElection the
// manager runs these on the leader alone: one replica would hold all slots.
type joiner struct{ *Group }

func (joiner) NeedLeaderElection() bool { return false }

func (j joiner) Start(ctx context.Context) error {
	defer close(j.ended)
	config := j.options.Member
	config.Queues = nil
	for _, c := range j.controllers {
		config.Queues = append(config.Queues, c.Name)
		// The first list waits until the cache is filled. Only then slots should come here.
		if _, err := c.keys(ctx); err != nil {
			return fmt.Errorf("shardedmanager: cannot list the keys of %s: %w", c.Name, err)
		}
	}
	member, err := sharding.Join(ctx, j.options.Store, config)
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.member = member
	j.mu.Unlock()
	close(j.joined)
	for _, c := range j.controllers {
		select {
		case <-c.made:
		case <-ctx.Done():
			return nil
		}
	}
	j.mu.Lock()
	queues, err := j.queues, j.err
	j.mu.Unlock()
	if err == nil {
		err = j.options.Registerer.Register(shardingprom.NewCollector(member, queues))
	}
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-member.Done():
		return member.Err()
	}
}

// keys lists what the cache has, also for other replicas.
func (c *shardedController) keys(ctx context.Context) (iter.Seq[reconcile.Request], error) {
	list := c.List.DeepCopyObject().(client.ObjectList)
	if err := c.group.mgr.GetClient().List(ctx, list); err != nil {
		return nil, err
	}
	var keys []reconcile.Request
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("shardedmanager: %v is no client.Object", reflect.TypeOf(o))
		}
		keys = append(keys, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		return nil
	})
	return slices.Values(keys), err
}
