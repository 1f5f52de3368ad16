package controllerruntime_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
)

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
