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
	clientgo "k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
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
	r := &shardedReplica{namespace: *namespace, client: client, logger: logger}
	r.join = func(ctx context.Context) (err error) {
		r.member, err = sharding.Join(ctx, sharding.Leases(client.CoordinationV1(), *namespace), sharding.Config{
			Group: "replicas", Name: *name, Slots: shardingSlots, Lease: *lease, HandoverTimeout: 5 * time.Second,
			Logger: logger,
		})
		if err == nil {
			go r.printHeld()
		}
		return err
	}
	if *onManager {
		err = r.runManager(ctx, config)
	} else {
		err = r.runInformer(ctx)
	}
	if r.member == nil {
		return err
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, r.member.Leave(leaving))
}

type shardedReplica struct {
	namespace string
	client    kubernetes.Interface
	logger    *slog.Logger
	join      func(context.Context) error
	member    *sharding.Member
}

// runInformer works on client-go's informers until ctx ends.
func (r *shardedReplica) runInformer(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(r.client, 0, informers.WithNamespace(r.namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	factory.StartWithContext(watching)
	defer factory.Shutdown()
	defer stopWatching()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	if err := r.join(ctx); err != nil {
		return err
	}
	queue, err := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		r.member, sharding.QueueConfig[cache.ObjectName]{
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
	err = mgr.Add(crmanager.RunnableFunc(func(ctx context.Context) error {
		if _, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
			return err
		}
		if err := r.join(ctx); err != nil {
			return err
		}
		return r.addController(mgr)
	}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (r *shardedReplica) addController(mgr crmanager.Manager) error {
	var queue sharding.Queue[reconcile.Request]
	made := make(chan struct{})
	newQueue := func(name string,
		limiter clientgo.TypedRateLimiter[reconcile.Request]) clientgo.TypedRateLimitingInterface[reconcile.Request] {
		inner := priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter })
		q := sharding.NewOptsQueue(inner, r.member, sharding.QueueConfig[reconcile.Request]{
			Keys: func(ctx context.Context) (iter.Seq[reconcile.Request], error) {
				var list corev1.ConfigMapList
				err := mgr.GetClient().List(ctx, &list)
				var keys []reconcile.Request
				for i := range list.Items {
					m := &list.Items[i]
					keys = append(keys, reconcile.Request{NamespacedName: cache.MetaObjectToName(m).AsNamespacedName()})
				}
				return slices.Values(keys), err
			},
		}, func(priority int) priorityqueue.AddOpts { return priorityqueue.AddOpts{Priority: &priority} })
		queue = q
		close(made)
		return q
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{NewQueue: newQueue, NeedLeaderElection: new(bool),
			MaxConcurrentReconciles: 4}).
		Complete(reconcile.Func(func(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
			<-made
			ctx, release := queue.Lease(ctx, key)
			defer release()
			var m corev1.ConfigMap
			if err := mgr.GetClient().Get(ctx, key.NamespacedName, &m); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, r.handle(ctx, &m)
		}))
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
func (r *shardedReplica) printHeld() {
	var last uint64
	for n := 0; ; n++ {
		var held uint64
		for i, s := range r.member.Slots() {
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
