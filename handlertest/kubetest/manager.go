package kubetest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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

	cluster     *Cluster
	controllers []controller.Controller
	reconcilers map[string]reconcile.Reconciler // the controllers, by the prefixes of their requests
	others      []manager.Runnable
	requests    *requests
	// The cluster's mu guards what follows.
	cache     objects
	indexes   map[index]client.IndexerFunc
	shown     map[schema.GroupVersionKind]int // the last change of each kind
	informers []informer                      // with handlers
}

var _ manager.Manager = (*Manager)(nil)

type index struct {
	kind  schema.GroupVersionKind
	field string
}

// newManager returns the manager of a process that starts.
func newManager(c *Cluster, p *handlertest.Process, queue *requests) *Manager {
	m := &Manager{Process: p, cluster: c, requests: queue, reconcilers: make(map[string]reconcile.Reconciler),
		indexes: make(map[index]client.IndexerFunc), shown: make(map[schema.GroupVersionKind]int)}
	c.attach(m)
	return m
}

// start starts what was added, and returns when the caches of the controllers have synced.
func (m *Manager) start() error {
	if len(m.controllers) == 0 {
		return fmt.Errorf("no controller was added to the manager: build one with builder.ControllerManagedBy")
	}
	for i, c := range m.controllers { // One after the other, so that each run is the same.
		if err := m.startController(c, i == 0); err != nil {
			return err
		}
	}
	m.requests.flush()
	for _, r := range m.others {
		go func() { m.Process.Tell("a Runnable returns: %v", r.Start(m.Process.Context())) }()
	}
	return nil
}

// startController starts a controller. The requests of all but the first have its name as a prefix.
func (m *Manager) startController(c controller.Controller, first bool) error {
	newQueue := reflect.ValueOf(c).Elem().FieldByName("NewQueue")
	if !newQueue.IsValid() {
		return fmt.Errorf("the controllers of this version of controller-runtime have no field NewQueue")
	}
	queue := &controllerQueue{requests: m.requests, wanted: make(chan struct{})}
	newQueue.Set(reflect.ValueOf(func(name string,
		_ workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		if !first {
			queue.prefix = name
		}
		m.reconcilers[queue.prefix] = c
		return queue
	}))
	ended := make(chan error, 1)
	go func() { ended <- c.Start(m.Process.Context()) }()
	select {
	case err := <-ended:
		return cmp.Or(err, m.Process.Context().Err())
	case <-queue.wanted:
		return nil
	}
}

// reconcile calls the controller that has made a request.
func (m *Manager) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	prefix, namespace, found := strings.Cut(request.Namespace, prefixEnd)
	if !found {
		prefix, namespace = "", request.Namespace
	}
	request.Namespace = namespace
	return m.reconcilers[prefix].Reconcile(ctx, request)
}

// Add adds a controller of requests, or something else that runs beside it.
func (m *Manager) Add(r manager.Runnable) error {
	if c, ok := r.(controller.Controller); ok {
		m.controllers = append(m.controllers, c)
	} else {
		m.others = append(m.others, r)
	}
	return nil
}

// GetClient returns a client that reads from the cache of the process and writes to the cluster.
func (m *Manager) GetClient() client.Client {
	return &kubeClient{cluster: m.cluster, manager: m, cache: cacheReader{m}}
}

// GetAPIReader returns a client that reads from the cluster.
func (m *Manager) GetAPIReader() client.Reader { return &kubeClient{cluster: m.cluster, manager: m} }

// GetScheme returns the scheme of the cluster.
func (m *Manager) GetScheme() *runtime.Scheme { return m.cluster.scheme }

// GetRESTMapper returns a mapper for the kinds in the scheme.
func (m *Manager) GetRESTMapper() meta.RESTMapper { return kindMapper{cluster: m.cluster} }

// GetCache returns the cache of the process.
func (m *Manager) GetCache() cache.Cache {
	return processCache{cacheReader{m}, nil}
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
