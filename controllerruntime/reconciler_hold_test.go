package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/worker"
)

// add has the handler see an update of a ConfigMap.
func (s *scene) add(name string) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	s.handler.Update(context.Background(), event.UpdateEvent{ObjectOld: object, ObjectNew: object}, s.queue)
}

// A request on hold comes when it is released or at its limit, and not before, even if it is added. No worker
// waits. When the manager stops, no request is held any more.
func TestHoldInManager(t *testing.T) {
	p := &page{}
	onWrapped(t, controllerruntime.Options[reconcile.Request]{Page: p},
		func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
			var calls atomic.Int32
			releases := make(chan func(), 3)
			s.reconcile = func(ctx context.Context, name string) (reconcile.Result, error) {
				if name != "a" {
					return reconcile.Result{}, nil
				}
				call := worker.CallOf(ctx)
				switch calls.Add(1) {
				case 1:
					return reconcile.Result{}, errors.New("not yet")
				case 2:
					releases <- call.Hold("it is ready", time.Hour)
					return reconcile.Result{}, fmt.Errorf("a: %w", worker.RequeueAfter(0))
				case 3:
					call.Hold("its limit", 10*time.Second)
					return reconcile.Result{}, worker.RequeueAfter(0)
				}
				call.Hold("the end", time.Hour)
				return reconcile.Result{}, nil
			}
			s.create(false, "a") // It fails, is retried after a second, and is held.
			time.Sleep(5 * time.Second)
			s.add("a")
			s.create(false, "b")
			s.want("a@0s", "a@1s", "b@5s")
			if st := p.pool.Stats(); st.OnHold != 1 || st.Failed != 1 || st.Busy != 0 ||
				s.queue.NumRequeues(requestA) != 0 {
				t.Errorf("%+v, %d requeues", st, s.queue.NumRequeues(requestA))
			}
			if held := p.pool.Snapshot(9).OnHold; len(held) != 1 || held[0].Key != requestA ||
				held[0].Reason != "it is ready" {
				t.Errorf("%+v", held)
			}
			time.Sleep(5 * time.Second)
			(<-releases)()
			s.want("a@10s")
			time.Sleep(time.Minute)
			s.want("a@20s") // The limit. Then it is held forever.
			if st := p.pool.Stats(); st.OnHold != 1 || st.HoldsToLimit != 1 || s.queue.NumRequeues(requestA) != 0 {
				t.Errorf("%+v, %d requeues", st, s.queue.NumRequeues(requestA))
			}
		})
	if st := p.pool.Stats(); st.OnHold != 0 || !st.Ended {
		t.Errorf("%+v", st)
	}
}

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
