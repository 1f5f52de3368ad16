package kubetest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/keyedqueue/workqueue/handlertest"
)

// Manager is one life of the process, as what SetupWithManager gets. It is a [manager.Manager]: the builder
// of controller-runtime works with it, its client reads from the cache of the process and writes to the
// cluster, and its event recorders drop all events. It has no webhook server, and what is set up for health
// checks and metrics panics, and so does GetEventRecorder, whose type differs between versions of
// controller-runtime.
type Manager struct {
	manager.Manager // nil: other methods panic

	// Process is for effects outside the cluster. See [handlertest.Process].
	Process *handlertest.Process

	cluster    *Cluster
	controller controller.Controller
	others     []manager.Runnable
	requests   *requests
	// The cluster's mu guards what follows.
	cache   map[schema.GroupVersionKind]map[types.NamespacedName]client.Object
	indexes map[index]client.IndexerFunc
	shown   map[schema.GroupVersionKind]int // the last change of each kind
	watches []*watchOfKind
}

type index struct {
	kind  schema.GroupVersionKind
	field string
}

// newManager returns the manager of a process that starts.
func newManager(c *Cluster, p *handlertest.Process, queue *requests) *Manager {
	m := &Manager{Process: p, cluster: c, requests: queue, indexes: make(map[index]client.IndexerFunc),
		shown: make(map[schema.GroupVersionKind]int)}
	c.attach(m)
	return m
}

// start starts what was added, and returns when the caches of the controller have synced.
func (m *Manager) start() error {
	if m.controller == nil {
		return fmt.Errorf("no controller was added to the manager: build one with builder.ControllerManagedBy")
	}
	newQueue := reflect.ValueOf(m.controller).Elem().FieldByName("NewQueue")
	if !newQueue.IsValid() {
		return fmt.Errorf("the controllers of this version of controller-runtime have no field NewQueue")
	}
	newQueue.Set(reflect.ValueOf(m.requests.asQueue))
	ctx := m.Process.Context()
	for _, r := range m.others {
		go func() { _ = r.Start(ctx) }()
	}
	ended := make(chan error, 1)
	go func() { ended <- m.controller.Start(ctx) }()
	select {
	case err := <-ended:
		return cmp.Or(err, ctx.Err())
	case <-m.requests.wanted:
	}
	m.requests.flush()
	return nil
}

// Add adds the controller of requests, exactly one, or something else that runs beside it.
func (m *Manager) Add(r manager.Runnable) error {
	c, ok := r.(controller.Controller)
	switch {
	case !ok:
		m.others = append(m.others, r)
	case m.controller != nil:
		return fmt.Errorf("kubetest: the manager has a controller already: test each in a scenario of its own")
	default:
		m.controller = c
	}
	return nil
}

// GetClient returns a client that reads from the cache of the process and writes to the cluster.
func (m *Manager) GetClient() client.Client {
	return &kubeClient{cluster: m.cluster, manager: m, cached: true}
}

// GetAPIReader returns a client that reads from the cluster.
func (m *Manager) GetAPIReader() client.Reader { return &kubeClient{cluster: m.cluster, manager: m} }

// GetScheme returns the scheme of the cluster.
func (m *Manager) GetScheme() *runtime.Scheme { return m.cluster.scheme }

// GetRESTMapper returns a mapper for the kinds in the scheme.
func (m *Manager) GetRESTMapper() meta.RESTMapper { return m.cluster.mapper() }

// GetCache returns the cache of the process.
func (m *Manager) GetCache() cache.Cache {
	return processCache{&kubeClient{cluster: m.cluster, manager: m, cached: true, isCache: true}, nil, m}
}

// GetFieldIndexer returns m, which has IndexField.
func (m *Manager) GetFieldIndexer() client.FieldIndexer { return m }

// IndexField makes List of the manager's client accept [client.MatchingFields] with that field.
func (m *Manager) IndexField(_ context.Context, kind client.Object, field string,
	values client.IndexerFunc) error {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	m.indexes[index{m.cluster.kindOf(kind), field}] = values
	return nil
}

// GetControllerOptions returns options in which a panic of a reconciler is no error, but a failure of the
// run.
func (m *Manager) GetControllerOptions() config.Controller {
	yes, no := true, false
	return config.Controller{SkipNameValidation: &yes, RecoverPanic: &no}
}

// GetEventRecorderFor returns a recorder that drops all events.
func (m *Manager) GetEventRecorderFor(string) record.EventRecorder { return &record.FakeRecorder{} }

// GetLogger returns a logger that logs nothing.
func (m *Manager) GetLogger() logr.Logger { return logr.Discard() }

// GetConfig returns an empty one: no client that is made from it reaches the cluster.
func (m *Manager) GetConfig() *rest.Config { return &rest.Config{} }

// GetHTTPClient returns a client that knows nothing of the cluster.
func (m *Manager) GetHTTPClient() *http.Client { return &http.Client{} }

// Elected returns a closed channel.
func (m *Manager) Elected() <-chan struct{} {
	elected := make(chan struct{})
	close(elected)
	return elected
}

// processCache is the cache of a process, as the sources of controller-runtime use it.
type processCache struct {
	client.Reader
	cache.Informers // nil: other methods panic
	manager         *Manager
}

func (p processCache) IndexField(ctx context.Context, o client.Object, field string, values client.IndexerFunc) error {
	return p.manager.IndexField(ctx, o, field, values)
}

func (p processCache) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer,
	error) {
	kind, err := p.manager.GetClient().GroupVersionKindFor(o)
	return informer{manager: p.manager, kind: kind, like: o}, err
}

func (p processCache) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind,
	_ ...cache.InformerGetOption) (cache.Informer, error) {
	o, err := p.manager.cluster.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	return informer{manager: p.manager, kind: kind, like: o.(client.Object)}, nil
}

func (p processCache) WaitForCacheSync(context.Context) bool { return true }

func (p processCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// informer shows the objects of a kind to handlers, as objects of the type of like.
type informer struct {
	cache.Informer // nil: other methods panic
	manager        *Manager
	kind           schema.GroupVersionKind
	like           client.Object
}

func (informer) HasSynced() bool { return true }
func (informer) IsStopped() bool { return false }

// AddEventHandler shows the objects that the cache has now, and later what changes.
func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration,
	error) {
	m := i.manager
	w := &watchOfKind{informer: i, handler: h}
	m.cluster.mu.Lock()
	m.watches = append(m.watches, w)
	listed := sorted(m.cache[i.kind])
	m.cluster.mu.Unlock()
	for _, o := range listed {
		h.OnAdd(w.typed(o), true)
	}
	return w, nil
}

func (i informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler,
	_ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// watchOfKind is a handler with its informer.
type watchOfKind struct {
	toolscache.ResourceEventHandlerRegistration // nil: other methods panic
	informer
	handler toolscache.ResourceEventHandler
}

func (*watchOfKind) HasSynced() bool { return true }

// typed returns a copy of o of the type that the informer has.
func (w *watchOfKind) typed(o client.Object) client.Object {
	into := reflect.New(reflect.TypeOf(w.like).Elem()).Interface().(client.Object)
	if err := w.manager.cluster.copyInto(into, o, w.kind); err != nil {
		panic(fmt.Sprintf("kubetest: %v", err))
	}
	return into
}

// change is what the cache of a process shows: old is nil for an object that is new, and now for one that is
// gone.
type change struct {
	kind     schema.GroupVersionKind
	old, now client.Object
}

// changed shows changes to the handlers, and adds the requests that they make.
func (m *Manager) changed(changes []change) {
	m.cluster.mu.Lock()
	watches := slices.Clone(m.watches)
	m.cluster.mu.Unlock()
	m.requests.collect()
	for _, ch := range changes {
		for _, w := range watches {
			switch {
			case w.kind != ch.kind:
			case ch.old == nil:
				w.handler.OnAdd(w.typed(ch.now), false)
			case ch.now == nil:
				w.handler.OnDelete(w.typed(ch.old))
			default:
				w.handler.OnUpdate(w.typed(ch.old), w.typed(ch.now))
			}
		}
	}
	m.requests.flush()
}

var _ manager.Manager = (*Manager)(nil)
