package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime/shardedmanager"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/worker"
)

// shardingSlots is the number of slots, so that those of a replica fit into a word of its log.
const shardingSlots = 64

// replica is one of several programs that divide the ConfigMaps of a namespace. It prints when it begins and
// ends to handle each, and which slots it holds. See readLog.
func replica(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("replica", flag.ContinueOnError)
	server := flags.String("server", "", "the `URL` of the API server, in place of the kubeconfig's")
	kubeconfig := flags.String("kubeconfig", "", "`file` that says where the cluster is")
	namespace := flags.String("namespace", "", "the namespace of the objects and Leases")
	name := flags.String("name", "", "the member's name")
	lease := flags.Duration("lease", 2*time.Second, "the member's lease")
	onManager := flags.Bool("manager", false,
		"run on controller-runtime in place of informers and package worker")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags(*server, *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // No limit.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := &shardedReplica{namespace: *namespace, client: client, logger: logger,
		store: sharding.Leases(client.CoordinationV1(), *namespace), config: sharding.Config{
			Group: "replicas", Name: *name, Slots: shardingSlots, Lease: *lease, HandoverTimeout: 5 * time.Second,
			Logger: logger,
		}}
	if *onManager {
		return r.runManager(ctx, config)
	}
	return r.runInformer(ctx)
}

// queueName is the queue's name in its group, on a real server and on a simulated one.
const queueName = "configmaps"

type shardedReplica struct {
	namespace string
	client    kubernetes.Interface
	logger    *slog.Logger
	store     sharding.Store
	config    sharding.Config
}

// runInformer works on client-go's informers until ctx ends.
func (r *shardedReplica) runInformer(ctx context.Context) (err error) {
	factory := informers.NewSharedInformerFactoryWithOptions(r.client, 0, informers.WithNamespace(r.namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	factory.StartWithContext(watching)
	defer factory.Shutdown()
	defer stopWatching()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	member, err := sharding.Join(ctx, r.store, r.config)
	if err != nil {
		return err
	}
	go r.printHeld(member)
	defer func() {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, member.Leave(leaving))
	}()
	queue, err := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		member, sharding.QueueConfig[cache.ObjectName]{
			Name: queueName,
			Keys: func(context.Context) (iter.Seq[cache.ObjectName], error) {
				var keys []cache.ObjectName
				for _, object := range informer.GetStore().List() {
					keys = append(keys, cache.MetaObjectToName(object.(*corev1.ConfigMap)))
				}
				return slices.Values(keys), nil
			},
		})
	if err != nil {
		return err
	}
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
			queue.Add(key)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }, DeleteFunc: enqueue,
	})
	if err != nil {
		return err
	}
	return worker.Run(ctx, queue, func(ctx context.Context, key cache.ObjectName) error {
		object, found, err := informer.GetStore().GetByKey(key.String())
		if err != nil || !found {
			return err
		}
		return r.handle(ctx, object.(*corev1.ConfigMap))
	}, worker.Options[cache.ObjectName]{Workers: 4, DrainTimeout: 5 * time.Second, Logger: r.logger})
}

// runManager works on a manager of controller-runtime until ctx ends. A request has the same hash as an
// ObjectName.
func (r *shardedReplica) runManager(ctx context.Context, config *rest.Config) error {
	ctrl.SetLogger(logr.FromSlogHandler(r.logger.Handler()))
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   crcache.Options{DefaultNamespaces: map[string]crcache.Config{r.namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	group, err := shardedmanager.New(mgr, shardedmanager.Options{Member: r.config, Store: r.store})
	if err != nil {
		return err
	}
	err = group.Add(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}), shardedmanager.Controller{
		Name: queueName, List: &corev1.ConfigMapList{}, Options: controller.Options{MaxConcurrentReconciles: 4},
		Reconciler: reconcile.Func(func(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
			var m corev1.ConfigMap
			if err := mgr.GetClient().Get(ctx, key.NamespacedName, &m); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, r.handle(ctx, &m)
		})})
	if err != nil {
		return err
	}
	go func() {
		for group.Member() == nil {
			time.Sleep(time.Millisecond)
		}
		r.printHeld(group.Member())
	}()
	return group.Start(ctx)
}

// handle works on a version of an object for a moment.
func (r *shardedReplica) handle(ctx context.Context, m *corev1.ConfigMap) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Printf("start %d %s %s\n", monotonic(), m.Name, m.Data["version"])
	result := "done"
	select {
	case <-time.After(time.Duration(10+rand.IntN(90)) * time.Millisecond):
	case <-ctx.Done():
		result = "ended"
	}
	fmt.Printf("%s %d %s %s\n", result, monotonic(), m.Name, m.Data["version"])
	return context.Cause(ctx)
}

// printHeld prints which slots the member holds when that has changed, and now and then.
func (r *shardedReplica) printHeld(member *sharding.Member) {
	var last uint64
	for n := 0; ; n++ {
		var held uint64
		for i, s := range member.Slots() {
			if s.Held {
				held |= 1 << i
			}
		}
		if held != last || n%25 == 0 {
			fmt.Printf("held %d %x\n", monotonic(), held)
			last = held
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// monotonic returns the time by a clock that all processes of this machine share, and that is never set.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
