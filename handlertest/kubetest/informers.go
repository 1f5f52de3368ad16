package kubetest

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// processCache is the cache of a process, as the sources of controller-runtime use it.
type processCache struct {
	cacheReader
	cache.Informers // nil: other methods panic
}

func (p processCache) IndexField(ctx context.Context, o client.Object, field string, values client.IndexerFunc) error {
	return p.manager.IndexField(ctx, o, field, values)
}

func (p processCache) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer,
	error) {
	kind, err := apiutil.GVKForObject(o, p.manager.cluster.scheme)
	return informer{manager: p.manager, kind: kind, like: o}, err
}

func (p processCache) WaitForCacheSync(context.Context) bool { return true }

func (p processCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// informer shows the objects of a kind to a handler, as objects of the type of like.
type informer struct {
	cache.Informer // nil: other methods panic
	manager        *Manager
	kind           schema.GroupVersionKind
	like           client.Object
	handler        toolscache.ResourceEventHandler // nil before AddEventHandler
}

func (informer) HasSynced() bool { return true }
func (informer) IsStopped() bool { return false }

// AddEventHandler shows the objects that the cache has now, and later what changes.
func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration,
	error) {
	m := i.manager
	i.handler = h
	m.cluster.mu.Lock()
	m.informers = append(m.informers, i)
	listed := sorted(m.cache[i.kind])
	m.cluster.mu.Unlock()
	for _, o := range listed {
		h.OnAdd(i.typed(o), true)
	}
	return registration{}, nil
}

// registration is that of a handler, which has seen the objects of the listing.
type registration struct {
	toolscache.ResourceEventHandlerRegistration // nil: other methods panic
}

func (registration) HasSynced() bool { return true }

func (i informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler,
	_ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// typed returns a copy of o of the type that the informer has, as an answer of the API server.
func (i informer) typed(o client.Object) client.Object {
	into := newLike(i.like)
	must(answerWith(into, o, i.kind))
	return into
}

// changed shows changes to the handlers, and adds the requests that they make.
func (m *Manager) changed(changes []change) {
	m.cluster.mu.Lock()
	informers := slices.Clone(m.informers)
	m.cluster.mu.Unlock()
	m.requests.collect()
	for _, ch := range changes {
		for _, i := range informers {
			switch {
			case i.kind != ch.kind:
			case ch.old == nil:
				i.handler.OnAdd(i.typed(ch.now), false)
			case ch.now == nil:
				i.handler.OnDelete(i.typed(ch.old))
			default:
				i.handler.OnUpdate(i.typed(ch.old), i.typed(ch.now))
			}
		}
	}
	m.requests.flush()
}
