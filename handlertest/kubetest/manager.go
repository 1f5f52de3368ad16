package kubetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

// Scenario is what is tested. See package [github.com/keyedqueue/workqueue/handlertest].
type Scenario = handlertest.Scenario[reconcile.Request]

// Converges tests that a reconciler reaches the same outcome whatever happens in between. See
// [github.com/keyedqueue/workqueue/handlertest.Converges].
func Converges(t *testing.T, scenario func(s *Scenario)) {
	t.Helper()
	handlertest.Converges(t, scenario)
}

// Find is Converges for tests that want the report. See
// [github.com/keyedqueue/workqueue/handlertest.Find].
func Find(t *testing.T, scenario func(s *Scenario)) (report string) {
	t.Helper()
	return handlertest.Find(t, scenario)
}

// Manager is one life of the process, as a reconciler sees it. Its methods are for the function of
// [Cluster.Start].
type Manager struct {
	// Client reads from the cache of the process, and writes to the cluster.
	Client client.Client
	// APIReader reads from the cluster.
	APIReader client.Reader
	// Scheme is the cluster's.
	Scheme *runtime.Scheme
	// Process is for effects outside the cluster. See [handlertest.Process].
	Process *handlertest.Process

	cluster *Cluster
	queue   func(reconcile.Request)
	forKind schema.GroupVersionKind
	watches []source
	cache   map[schema.GroupVersionKind]map[types.NamespacedName]client.Object // guarded by the cluster's mu
	indexes map[index]client.IndexerFunc                                       // likewise
	// the last change of each kind; likewise
	shown map[schema.GroupVersionKind]int
}

type index struct {
	kind  schema.GroupVersionKind
	field string
}

// source is what one kind adds to the queue.
type source struct {
	kind       schema.GroupVersionKind
	predicates []predicate.Predicate
	requests   func(client.Object) []reconcile.Request
}

// For adds the request of an object of that kind when it changes.
func (m *Manager) For(kind client.Object, predicates ...predicate.Predicate) {
	m.forKind = m.cluster.kindOf(kind)
	m.watch(kind, predicates, func(o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	})
}

// Owns adds the request of the controller of an object of that kind, which [Manager.For] has named before,
// when it changes.
func (m *Manager) Owns(kind client.Object, predicates ...predicate.Predicate) {
	if m.forKind.Kind == "" {
		panic("kubetest: Manager.Owns before Manager.For")
	}
	m.watch(kind, predicates, func(o client.Object) []reconcile.Request {
		owner := metav1.GetControllerOf(o)
		if owner == nil || owner.Kind != m.forKind.Kind ||
			schema.FromAPIVersionAndKind(owner.APIVersion, "").Group != m.forKind.Group {
			return nil
		}
		name := types.NamespacedName{Name: owner.Name}
		m.cluster.mu.Lock()
		defer m.cluster.mu.Unlock()
		if !m.cluster.global[m.forKind] {
			name.Namespace = o.GetNamespace()
		}
		return []reconcile.Request{{NamespacedName: name}}
	})
}

// Watches adds the requests that requests returns for an object of that kind when it changes. It may read
// from the cache.
func (m *Manager) Watches(kind client.Object, requests handler.MapFunc, predicates ...predicate.Predicate) {
	m.watch(kind, predicates, func(o client.Object) []reconcile.Request {
		return requests(m.Process.Context(),
			o)
	})
}

func (m *Manager) watch(kind client.Object, predicates []predicate.Predicate,
	requests func(client.Object) []reconcile.Request) {
	m.watches = append(m.watches, source{m.cluster.kindOf(kind), predicates, requests})
}

// IndexField makes List of Client accept client.MatchingFields with that field. It is that of
// [client.FieldIndexer].
func (m *Manager) IndexField(_ context.Context, kind client.Object, field string,
	values client.IndexerFunc) error {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	m.indexes[index{m.cluster.kindOf(kind), field}] = values
	return nil
}

// Start makes the reconciler of each process the scenario's handler, run by one worker unless
// Scenario.Options has more. It sets Scenario.Start. What the reconciler remembers must be made in new: a
// crash loses it.
func (c *Cluster) Start(new func(m *Manager) reconcile.Reconciler) {
	if c.scenario == nil {
		panic("kubetest: Cluster.Start needs a Scenario whose keys are reconcile.Request")
	}
	if c.scenario.Options.Workers == 0 {
		c.scenario.Options.Workers = 1
	}
	if c.scenario.Measure == nil {
		c.scenario.Measure = c.measure
	}
	c.scenario.Start = func(p *handlertest.Process) worker.Handler[reconcile.Request] {
		m := &Manager{Scheme: c.scheme, Process: p, cluster: c, queue: c.scenario.QueueOf(p).Add,
			indexes: make(map[index]client.IndexerFunc), shown: make(map[schema.GroupVersionKind]int)}
		m.Client, m.APIReader = &kubeClient{cluster: c, manager: m, cached: true},
			&kubeClient{cluster: c, manager: m}
		c.attach(m)
		r := new(m)
		m.addListed()
		return handle(r)
	}
}

// handle returns the reconciler as a handler.
func handle(r reconcile.Reconciler) worker.Handler[reconcile.Request] {
	var mu sync.Mutex
	requeues := make(map[reconcile.Request]int) // in a row, by Result.Requeue
	return func(ctx context.Context, request reconcile.Request) error {
		result, err := r.Reconcile(ctx, request)
		mu.Lock()
		n := requeues[request]
		delete(requeues, request)
		//lint:ignore SA1019 Reconcilers still return it.
		again := err == nil && result.RequeueAfter == 0 && result.Requeue
		if again {
			requeues[request] = n + 1
		}
		mu.Unlock()
		switch {
		case errors.Is(err, reconcile.TerminalError(nil)):
			return worker.Terminal(err)
		case err != nil:
			return err
		case result.RequeueAfter > 0:
			return worker.RequeueAfter(result.RequeueAfter)
		case again: // The delays of the rate limiter.
			return worker.RequeueAfter(min(5*time.Millisecond<<min(n, 20), 1000*time.Second))
		}
		return nil
	}
}

// change is what the cache of a process shows: old is nil for an object that is new, and new for one that is
// gone.
type change struct {
	kind     schema.GroupVersionKind
	old, new client.Object
}

// addListed adds the requests of all that the cache has listed.
func (m *Manager) addListed() {
	var changes []change
	for _, w := range m.watches {
		m.cluster.mu.Lock()
		for _, o := range sorted(m.cache[w.kind]) {
			changes = append(changes, change{w.kind, nil, o})
		}
		m.cluster.mu.Unlock()
	}
	m.changed(changes)
}

// changed adds the requests of changes to the queue: each once, because it would depend on the scheduler of
// Go whether a second add merges with the first.
func (m *Manager) changed(changes []change) {
	added := make(map[reconcile.Request]bool)
	for _, ch := range changes {
		for _, w := range m.watches {
			if w.kind != ch.kind || !w.lets(ch) {
				continue
			}
			for _, o := range []client.Object{ch.new, ch.old} {
				if o == nil {
					continue
				}
				for _, request := range w.requests(o.DeepCopyObject().(client.Object)) {
					if !added[request] {
						added[request] = true
						m.queue(request)
					}
				}
			}
		}
	}
}

// lets reports whether the predicates let a change pass.
func (w source) lets(ch change) bool {
	for _, p := range w.predicates {
		ok := false
		switch {
		case ch.old == nil:
			ok = p.Create(event.CreateEvent{Object: ch.new})
		case ch.new == nil:
			ok = p.Delete(event.DeleteEvent{Object: ch.old})
		default:
			ok = p.Update(event.UpdateEvent{ObjectOld: ch.old, ObjectNew: ch.new})
		}
		if !ok {
			return false
		}
	}
	return true
}
