// Command lag runs a controller whose cache is 50 ms behind its cluster, which is made up: client-go's fake.
// Its handler creates a ConfigMap if the cache shows none. README.md says where to look for what.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime/ownwrites"
	"github.com/keyedqueue/workqueue/worker"
)

func main() {
	without := flag.Bool("without", false, "do not wait for the cache")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *without, os.Stdout); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// controller gives each key one ConfigMap.
type controller struct {
	client     kubernetes.Interface
	configMaps corelisters.ConfigMapLister
	written    *ownwrites.Cache // nil: the handler does not wait for its own writes
	created    atomic.Int64
	out        io.Writer
}

// handle creates a ConfigMap if the cache shows none.
func (c *controller) handle(ctx context.Context, key cache.ObjectName) error {
	ofKey := labels.SelectorFromSet(labels.Set{"for": key.Name})
	shown, err := c.configMaps.ConfigMaps(key.Namespace).List(ofKey)
	if err != nil {
		return err
	}
	if len(shown) > 0 {
		fmt.Fprintf(c.out, "%s: the cache shows %d, nothing to do\n", key, len(shown))
		return nil
	}
	configMaps := c.client.CoreV1().ConfigMaps(key.Namespace)
	created, err := configMaps.Create(ctx, c.newConfigMap(key), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s: the cache shows none, so creates %s\n", key, created.Name)
	if c.written != nil {
		c.written.Wrote(ctx, created) // The key does not start again before the cache shows it.
	}
	return nil
}

// newConfigMap returns one as an API server would answer it for a generateName: with another name each time,
// a UID and a version.
func (c *controller) newConfigMap(key cache.ObjectName) *corev1.ConfigMap {
	n := fmt.Sprint(c.created.Add(1))
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name + "-" + n, Labels: map[string]string{"for": key.Name},
		UID: types.UID(n), ResourceVersion: n,
	}}
}

// run runs the controller while a key changes three times: twice within 10 ms, and once later.
func run(ctx context.Context, without bool, out io.Writer) error {
	client := fake.NewClientset()
	delayWatches(client, 50*time.Millisecond)
	factory := informers.NewSharedInformerFactory(client, 0)
	configMaps := factory.Core().V1().ConfigMaps()
	c := &controller{client: client, configMaps: configMaps.Lister(), out: out}
	if !without {
		var err error
		if c.written, err = ownwrites.Watch("ConfigMap", configMaps.Informer(), 10*time.Second); err != nil {
			return err
		}
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedControllerRateLimiter[cache.ObjectName](nil))
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		factory.StartWithContext(ctx)
		<-ctx.Done()
		factory.Shutdown()
		return nil
	})
	group.Go(func() error {
		return worker.Run(ctx, queue, c.handle, worker.Options[cache.ObjectName]{
			Workers: 2,
			Ready: func(ctx context.Context) error {
				return factory.WaitForCacheSyncWithContext(ctx).AsError()
			},
		})
	})
	group.Go(func() error {
		defer cancel()
		for _, after := range []time.Duration{time.Second, 10 * time.Millisecond, time.Second} {
			if err := pause(ctx, after); err != nil {
				return err
			}
			fmt.Fprintln(out, "  (default/web changes)")
			queue.Add(cache.NewObjectName("default", "web"))
		}
		return pause(ctx, time.Second)
	})
	return group.Wait()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
