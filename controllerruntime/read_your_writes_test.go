package controllerruntime_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
)

// laggingCache shows writes after 50 ms.
type laggingCache struct {
	cache.Cache
	mu       sync.Mutex
	objects  map[client.ObjectKey]*corev1.ConfigMap
	handlers []toolscache.ResourceEventHandler
}

type informer struct {
	cache.Informer
	cache *laggingCache
}

func (i informer) AddEventHandler(
	h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	i.cache.handlers = append(i.cache.handlers, h)
	return nil, nil
}

func (c *laggingCache) GetInformer(context.Context, client.Object,
	...cache.InformerGetOption) (cache.Informer, error) {
	return informer{cache: c}, nil
}

func (c *laggingCache) Get(_ context.Context, key client.ObjectKey, object client.Object,
	_ ...client.GetOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	shown, ok := c.objects[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	shown.DeepCopyInto(object.(*corev1.ConfigMap))
	return nil
}

// show shows object, or that it is gone, after 50 ms.
func (c *laggingCache) show(object *corev1.ConfigMap, gone bool) {
	object = object.DeepCopy()
	time.AfterFunc(50*time.Millisecond, func() {
		c.mu.Lock()
		if gone {
			delete(c.objects, client.ObjectKeyFromObject(object))
		} else {
			c.objects[client.ObjectKeyFromObject(object)] = object
		}
		handlers := c.handlers
		c.mu.Unlock()
		for _, h := range handlers {
			if gone {
				h.OnDelete(object)
			} else {
				h.OnUpdate(object, object)
			}
		}
	})
}

// watchedClient is a client whose writes the cache shows.
type watchedClient struct {
	client.Client
	cache *laggingCache
}

func (c watchedClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, object, opts...)
	c.cache.show(object.(*corev1.ConfigMap), false)
	return err
}

func (c watchedClient) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	err := c.Client.Update(ctx, object, opts...)
	c.cache.show(object.(*corev1.ConfigMap), false)
	return err
}

func (c watchedClient) Patch(ctx context.Context, object client.Object, patch client.Patch,
	opts ...client.PatchOption) error {
	err := c.Client.Patch(ctx, object, patch, opts...)
	c.cache.show(object.(*corev1.ConfigMap), false)
	return err
}

func (c watchedClient) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, object, opts...)
	c.cache.show(object.(*corev1.ConfigMap), true)
	return err
}

// An add comes 10 ms after a write, and the cache lags by 50 ms. Each kind of write holds the request until the
// cache shows it. A dry run, a failure and a call without a write hold nothing.
func TestReadYourWritesOfEachKind(t *testing.T) {
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	for name, c := range map[string]struct {
		write func(ctx context.Context, c client.Client, object *corev1.ConfigMap) error
		want  string
	}{
		"create": {func(ctx context.Context, c client.Client, _ *corev1.ConfigMap) error {
			return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
				GenerateName: "other-"}})
		}, "a@50ms"},
		"update": {func(ctx context.Context, c client.Client, object *corev1.ConfigMap) error {
			object.Data = map[string]string{"a": "b"}
			return c.Update(ctx, object)
		}, "a@50ms"},
		"patch": {func(ctx context.Context, c client.Client, object *corev1.ConfigMap) error {
			before := object.DeepCopy()
			object.Data = map[string]string{"a": "b"}
			return c.Patch(ctx, object, client.MergeFrom(before))
		}, "a@50ms"},
		"delete": {func(ctx context.Context, c client.Client, object *corev1.ConfigMap) error {
			return c.Delete(ctx, object)
		}, "a@50ms"},
		"delete by name": {func(ctx context.Context, c client.Client, object *corev1.ConfigMap) error {
			return c.Delete(ctx, configMap(object.Name))
		}, "a@50ms"},
		"dry run": {func(ctx context.Context, c client.Client, object *corev1.ConfigMap) error {
			return c.Create(ctx, configMap("dry"), client.DryRunAll)
		}, "a@10ms"},
		"failure": {func(ctx context.Context, c client.Client, object *corev1.ConfigMap) error {
			if c.Create(ctx, object.DeepCopy()) == nil {
				return errors.New("it exists already")
			}
			return nil
		}, "a@10ms"},
		"nothing": {func(context.Context, client.Client, *corev1.ConfigMap) error { return nil }, "a@10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			onWrapped(t, controllerruntime.Options[reconcile.Request]{},
				func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
					lagging := &laggingCache{objects: make(map[client.ObjectKey]*corev1.ConfigMap)}
					inner := watchedClient{s.client, lagging}
					object := configMap("child")
					if err := inner.Create(t.Context(), object); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					s.began = time.Now()
					noting, err := controllerruntime.ReadYourWrites(t.Context(), inner, lagging, time.Minute,
						&corev1.ConfigMap{})
					if err != nil {
						t.Fatal(err)
					}
					var called atomic.Bool
					s.reconcile = func(ctx context.Context, _ string) (reconcile.Result, error) {
						if called.Swap(true) {
							return reconcile.Result{}, nil
						}
						return reconcile.Result{}, c.write(ctx, noting, object)
					}
					s.add("a")
					time.Sleep(10 * time.Millisecond)
					s.add("a")
					time.Sleep(time.Hour)
					s.want("a@0s", c.want)
				})
		})
	}
}

// It compiles without kinds, and with a limit that is not one: each would be a client that silently does
// nothing.
func TestReadYourWritesOfSenselessArguments(t *testing.T) {
	onWrapped(t, controllerruntime.Options[reconcile.Request]{},
		func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
			lagging := &laggingCache{}
			if _, err := controllerruntime.ReadYourWrites(t.Context(), s.client, lagging, 0,
				&corev1.ConfigMap{}); err == nil {
				t.Error("a limit of zero")
			}
			if _, err := controllerruntime.ReadYourWrites(t.Context(), s.client, nil, time.Second); err == nil {
				t.Error("no cache")
			}
			if _, err := controllerruntime.ReadYourWrites(t.Context(), s.client, lagging, time.Second,
				&metav1.PartialObjectMetadata{}); err == nil {
				t.Error("an object without a kind")
			}
			if _, err := controllerruntime.ReadYourWrites(t.Context(), s.client, lagging, time.Second); err == nil {
				t.Error("no kinds: a client that notes nothing")
			}
		})
}

// twoCaches has ConfigMaps, which lag, and their metadata, which does not.
type twoCaches struct {
	*laggingCache
	client client.Client
}

// noInformer is an informer without events.
type noInformer struct{ cache.Informer }

func (noInformer) AddEventHandler(
	toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

func (c twoCaches) GetInformer(ctx context.Context, o client.Object,
	opts ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := o.(*metav1.PartialObjectMetadata); ok {
		return noInformer{}, nil
	}
	return c.laggingCache.GetInformer(ctx, o)
}

func (c twoCaches) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	opts ...client.GetOption) error {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		full := &corev1.ConfigMap{}
		err := c.client.Get(ctx, key, full)
		m.ObjectMeta = full.ObjectMeta
		return err
	}
	return c.laggingCache.Get(ctx, key, o)
}

// A kind that is read in two forms is awaited in both caches.
func TestReadYourWritesInTwoForms(t *testing.T) {
	for _, both := range []bool{false, true} {
		onWrapped(t, controllerruntime.Options[reconcile.Request]{},
			func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
				lagging := &laggingCache{objects: make(map[client.ObjectKey]*corev1.ConfigMap)}
				kinds := []client.Object{&corev1.ConfigMap{}}
				if both {
					meta := &metav1.PartialObjectMetadata{}
					meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
					kinds = append(kinds, meta)
				}
				noting, err := controllerruntime.ReadYourWrites(t.Context(), watchedClient{s.client, lagging},
					twoCaches{lagging, s.client}, time.Minute, kinds...)
				if err != nil {
					t.Fatal(err)
				}
				var called atomic.Bool
				s.reconcile = func(ctx context.Context, _ string) (reconcile.Result, error) {
					if called.Swap(true) {
						return reconcile.Result{}, nil
					}
					return reconcile.Result{}, noting.Create(ctx,
						&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "child"}})
				}
				s.began = time.Now()
				s.add("a")
				time.Sleep(10 * time.Millisecond)
				s.add("a")
				time.Sleep(time.Hour)
				s.want("a@0s", "a@50ms") // The cache of ConfigMaps shows it after 50 ms.
			})
	}
}
