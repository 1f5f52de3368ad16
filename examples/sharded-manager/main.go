// Command sharded-manager is a program on controller-runtime whose replicas all work: package sharding
// divides the keys of its controller among them, in place of a leader election. It logs each ConfigMap that
// changes. docs/sharding.md explains it.
//
//	go run ./examples/sharded-manager -leases default    # the cluster that kubectl uses, until Ctrl-C
//	go run ./examples/sharded-manager -leader-elect      # beside controllers that only the leader runs
package main

import (
	"context"
	"errors"
	"flag"
	"iter"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/sharding/shardingprom"
)

func main() {
	leases := flag.String("leases", "default", "the namespace of the Leases")
	elect := flag.Bool("leader-elect", false,
		"elect a leader for other controllers of the program; the sharded one works on all replicas anyway")
	addr := flag.String("metrics", "0", "address of the metrics, such as :8080; \"0\" means none")
	flag.Parse() // controller-runtime adds -kubeconfig.
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), *leases, *addr, *elect, logger); err != nil {
		logger.Error("Ended", "err", err)
		os.Exit(1)
	}
}

// The default grace period of a pod is 30 s. Handlers and the handover must both end within it, or the pod is
// killed and its slots rest for a lease. (The manager's own default for handlers is 30 s.)
const (
	handlersMayTake = 15 * time.Second
	leaveMayTake    = 10 * time.Second
)

func run(ctx context.Context, config *rest.Config, namespace, addr string, elect bool,
	logger *slog.Logger) error {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection: elect, LeaderElectionID: "sharded-manager-leader", LeaderElectionNamespace: namespace,
		GracefulShutdownTimeout: new(handlersMayTake), Metrics: metricsserver.Options{BindAddress: addr},
	})
	if err != nil {
		return err
	}
	leases, err := coordination.NewForConfig(config)
	if err != nil {
		return err
	}
	return start(ctx, mgr, sharding.Leases(leases, namespace), &reconciler{mgr.GetClient(), logger},
		metrics.Registry, logger)
}

// start runs the manager with a sharded controller until ctx ends, and then hands over.
func start(ctx context.Context, mgr manager.Manager, store sharding.Store, r reconcile.Reconciler,
	registry prometheus.Registerer, logger *slog.Logger) error {
	j := &joiner{mgr: mgr, store: store, reconciler: r, registry: registry, logger: logger}
	if err := mgr.Add(j); err != nil {
		return err
	}
	// Start returns when all handlers have returned, or after the manager's GracefulShutdownTimeout.
	err := mgr.Start(ctx)
	if j.member == nil {
		return err
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveMayTake)
	defer cancel()
	return errors.Join(err, j.member.Leave(leaving))
}

// joiner joins when the manager has started, and adds the controller. It is no manager.RunnableFunc, because
// with LeaderElection: true the manager runs these on the leader alone: one replica would hold all slots.
type joiner struct {
	mgr        manager.Manager
	store      sharding.Store
	reconciler reconcile.Reconciler
	registry   prometheus.Registerer
	logger     *slog.Logger
	member     *sharding.Member
}

func (*joiner) NeedLeaderElection() bool { return false }

func (j *joiner) Start(ctx context.Context) (err error) {
	// GetInformer waits until the cache is filled. Only then slots should come here.
	if _, err = j.mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
		return err
	}
	if j.member, err = sharding.Join(ctx, j.store, sharding.Config{Group: "sharded-manager",
		Logger: j.logger}); err != nil {
		return err
	}
	return setUp(j.mgr, j.member, j.reconciler, j.registry)
}

type (
	request = reconcile.Request
	queue   = sharding.Queue[request]
)

// setUp adds the controller to the manager.
func setUp(mgr manager.Manager, member *sharding.Member, r reconcile.Reconciler,
	registry prometheus.Registerer) error {
	sharded := &shardedReconciler{Reconciler: r, queue: make(chan queue, 1)}
	newQueue := func(name string,
		limiter clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
		inner := priorityqueue.New(name, func(o *priorityqueue.Opts[request]) { o.RateLimiter = limiter })
		q := sharding.NewOptsQueue(inner, member, sharding.QueueConfig[request]{
			Keys: func(ctx context.Context) (iter.Seq[request], error) { return keys(ctx, mgr.GetClient()) },
			// Like controller-runtime does with what it lists at the start: changes come first.
			ListPriority: -100,
		}, func(priority int) priorityqueue.AddOpts { return priorityqueue.AddOpts{Priority: &priority} })
		registry.MustRegister(shardingprom.NewCollector(member, map[string]shardingprom.Queue{name: q}))
		sharded.queue <- q
		return q
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		// Without NeedLeaderElection: false the controller would wait to be the leader, and hold slots that nobody
		// handles meanwhile: Member.Err says so then.
		WithOptions(controller.Options{NewQueue: newQueue, NeedLeaderElection: new(bool),
			MaxConcurrentReconciles: 4}).
		Complete(sharded)
}

// keys lists what the cache has, also for other replicas.
func keys(ctx context.Context, c client.Client) (iter.Seq[request], error) {
	var list corev1.ConfigMapList
	err := c.List(ctx, &list)
	var keys []request
	for i := range list.Items {
		keys = append(keys, request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return slices.Values(keys), err
}

// shardedReconciler gives each call a context that ends when another replica may get the key. Package worker
// does this by itself; controller-runtime does not know it.
type shardedReconciler struct {
	reconcile.Reconciler
	queue chan queue // has the controller's queue
}

func (r *shardedReconciler) Reconcile(ctx context.Context, key request) (reconcile.Result, error) {
	q := <-r.queue
	r.queue <- q
	ctx, release := q.Lease(ctx, key)
	defer release()
	return r.Reconciler.Reconcile(ctx, key)
}

type reconciler struct {
	client client.Client
	logger *slog.Logger
}

func (r *reconciler) Reconcile(ctx context.Context, key request) (reconcile.Result, error) {
	var m corev1.ConfigMap
	if err := r.client.Get(ctx, key.NamespacedName, &m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	fence, _ := sharding.Fence(ctx)
	r.logger.Info("Reconciled", "configmap", key.String(), "version", m.ResourceVersion, "fence", fence)
	return reconcile.Result{}, nil
}
