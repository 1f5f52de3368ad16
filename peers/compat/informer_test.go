package compat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
)

// patience is how long a test waits for what happens on the real clock and in other goroutines.
const patience = 30 * time.Second

// eventually waits until settled returns no reason not to be.
func eventually(t *testing.T, settled func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := settled()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", patience, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// informerController is a controller as programs that use client-go have it. It copies what it sees
// of config maps into seen.
type informerController struct {
	queue  peer.TypedRateLimitingInterface[cache.ObjectName]
	lister corelisters.ConfigMapLister

	mu sync.Mutex
	// seen has the version of each config map that was reconciled last and not deleted.
	seen map[cache.ObjectName]string
	// failed are the keys that have failed once. attempts counts all.
	failed   map[cache.ObjectName]bool
	attempts int
}

func (c *informerController) enqueue(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		c.queue.Add(name)
	}
}

func (c *informerController) work() {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if err := c.reconcile(key); err != nil {
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

// reconcile fails when it sees a key for the first time.
func (c *informerController) reconcile(key cache.ObjectName) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts++
	if !c.failed[key] {
		c.failed[key] = true
		return errors.New("not the first time")
	}
	object, err := c.lister.ConfigMaps(key.Namespace).Get(key.Name)
	switch {
	case apierrors.IsNotFound(err):
		delete(c.seen, key)
		return nil
	case err != nil:
		return err
	}
	c.seen[key] = object.Data["version"]
	return nil
}

func (c *informerController) wants(want map[cache.ObjectName]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.seen, want) {
		return fmt.Errorf("reconciled %v, want %v", c.seen, want)
	}
	return nil
}

// TestInformerController has a controller see config maps being made, changed and deleted, through an
// informer and a queue, and end at the last version of each.
func TestInformerController(t *testing.T) {
	limiter := func() workqueue.TypedRateLimiter[cache.ObjectName] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](time.Millisecond, time.Second)
	}
	for name, queue := range map[string]peer.TypedRateLimitingInterface[cache.ObjectName]{
		ours:   workqueue.NewTypedRateLimitingQueue(limiter()),
		theirs: peer.NewTypedRateLimitingQueue[cache.ObjectName](limiter()),
	} {
		t.Run(name, func(t *testing.T) { runInformerController(t, queue) })
	}
}

func runInformerController(t *testing.T, queue peer.TypedRateLimitingInterface[cache.ObjectName]) {
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	configMaps := factory.Core().V1().ConfigMaps()
	c := &informerController{
		queue: queue, lister: configMaps.Lister(),
		seen: map[cache.ObjectName]string{}, failed: map[cache.ObjectName]bool{},
	}
	if _, err := configMaps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.enqueue,
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(c.work)
	}

	want := writeConfigMaps(t, ctx, client)
	eventually(t, func() error { return c.wants(want) })
	queue.ShutDownWithDrain()
	queue.ShutDown()
	workers.Wait()
	cancel()
	factory.Shutdown()
	if err := c.wants(want); err != nil {
		t.Error("after the drain: ", err)
	}
	if n := len(c.failed); c.attempts < 2*n || n < len(want) {
		t.Errorf("%d attempts at %d keys", c.attempts, n)
	}
	for key := range c.failed {
		if n := queue.NumRequeues(key); n != 0 {
			t.Errorf("%s has %d requeues", key, n)
		}
	}
}

// writeConfigMaps makes, changes and deletes config maps, many of them faster than they are reconciled.
// It returns the versions of those that are left.
func writeConfigMaps(t *testing.T, ctx context.Context, client *fake.Clientset) map[cache.ObjectName]string {
	t.Helper()
	const objects, versions = 40, 5
	want := map[cache.ObjectName]string{}
	for version := range versions {
		for i := range objects {
			key := cache.NewObjectName(fmt.Sprint("namespace", i%3), fmt.Sprint("name", i))
			object := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
				Data:       map[string]string{"version": strconv.Itoa(version)},
			}
			var err error
			if configMaps := client.CoreV1().ConfigMaps(key.Namespace); version == 0 {
				_, err = configMaps.Create(ctx, object, metav1.CreateOptions{})
			} else {
				_, err = configMaps.Update(ctx, object, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			want[key] = object.Data["version"]
		}
	}
	for i := 0; i < objects; i += 4 {
		key := cache.NewObjectName(fmt.Sprint("namespace", i%3), fmt.Sprint("name", i))
		if err := client.CoreV1().ConfigMaps(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		delete(want, key)
	}
	return want
}
