// Command sharded-manager is a program on controller-runtime whose replicas all work: package shardedmanager
// divides the keys of its controller among them, in place of a leader election. It logs each ConfigMap that
// changes. docs/sharding.md explains it.
//
//	go run ./examples/sharded-manager -leases default    # the cluster that kubectl uses, until Ctrl-C
//	go run ./examples/sharded-manager -leader-elect      # beside controllers that only the leader runs
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime/shardedmanager"
	"github.com/keyedqueue/workqueue/sharding"
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

func run(ctx context.Context, config *rest.Config, namespace, addr string, elect bool,
	logger *slog.Logger) error {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection: elect, LeaderElectionID: "sharded-manager-leader", LeaderElectionNamespace: namespace,
		// The default grace period of a pod is 30 s. Handlers and the handover, for ten seconds at most, must end
		// within it. (The manager's own default for handlers is 30 s.)
		GracefulShutdownTimeout: new(15 * time.Second), Metrics: metricsserver.Options{BindAddress: addr},
	})
	if err != nil {
		return err
	}
	group, err := shardedmanager.New(mgr, shardedmanager.Options{
		Namespace: namespace, Member: sharding.Config{Group: "sharded-manager", Logger: logger}})
	if err != nil {
		return err
	}
	err = group.Add(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}), shardedmanager.Controller{
		List: &corev1.ConfigMapList{}, Reconciler: &reconciler{mgr.GetClient(), logger},
		Options: controller.Options{MaxConcurrentReconciles: 4}})
	if err != nil {
		return err
	}
	return group.Start(ctx)
}

type reconciler struct {
	client client.Client
	logger *slog.Logger
}

func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (reconcile.Result, error) {
	var m corev1.ConfigMap
	if err := r.client.Get(ctx, key.NamespacedName, &m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	fence, _ := sharding.Fence(ctx)
	r.logger.Info("Reconciled", "configmap", key.String(), "version", m.ResourceVersion, "fence", fence)
	return reconcile.Result{}, nil
}
