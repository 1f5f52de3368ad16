// Command manager is a program on controller-runtime in which everything of this library is switched on: the
// debug page beside the metrics, a reconciler that stops waiting when there is something newer, event
// handlers that say why, traces, and stuck reconcilers. It waits for the rollouts of Deployments and logs how
// they end. README.md says where to look for what.
//
//	go run ./examples/manager          # the cluster that kubectl uses, until Ctrl-C
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/otel"
)

func main() {
	metrics := flag.String("metrics", "localhost:8080",
		"the `address` of the metrics and of the page, /debug/workqueue")
	actions := flag.Bool("actions", false,
		"let readers of the page cancel, retry and forget: only where others cannot reach it")
	flag.Parse() // controller-runtime adds -kubeconfig.
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	err := func() error {
		mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(),
			ctrl.Options{Metrics: metricsserver.Options{BindAddress: *metrics}})
		if err != nil {
			return err
		}
		page := debug.NewHandler(debug.Options{Actions: *actions})
		if err := mgr.AddMetricsServerExtraHandler("/debug/workqueue", page); err != nil {
			return err
		}
		// Another program has an exporter that sends spans to its collector.
		traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(logSpans{logger}))
		ctx := ctrl.SetupSignalHandler()
		defer func() { _ = traces.Shutdown(context.WithoutCancel(ctx)) }()
		if err := setUp(mgr, page, traces, &reconciler{mgr.GetClient(), logger}); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}()
	if err != nil {
		logger.Error("Ended", "err", err)
		os.Exit(1)
	}
}

// setUp adds the controller to the manager.
func setUp(mgr manager.Manager, page *debug.Handler, traces *sdktrace.TracerProvider, r *reconciler) error {
	traced := otel.TracingFunc(traces.Tracer("manager"), otel.TracingOptions{Name: "rollouts", Keys: true},
		r.Reconcile)
	wrapped := controllerruntime.WrapReconcilerWithOptions(reconcile.Func(traced),
		controllerruntime.Options[reconcile.Request]{
			Page:       page,
			StuckAfter: 30 * time.Minute, // No rollout should take that long.
		})
	return ctrl.NewControllerManagedBy(mgr).
		Named("rollouts").
		// Not For, whose adds have no causes, and interrupt with each new status.
		Watches(&appsv1.Deployment{}, controllerruntime.WithCauses(&handler.EnqueueRequestForObject{}, nil)).
		Watches(&corev1.Secret{}, controllerruntime.WithCauses(handler.EnqueueRequestsFromMapFunc(r.deploymentsOf),
			nil)).
		WithOptions(controller.Options{
			NewQueue:                wrapped.NewQueue,
			MaxConcurrentReconciles: 20, // Each may wait for a rollout.
		}).
		Complete(wrapped)
}

// deploymentsOf returns the requests of the Deployments that use a Secret.
func (r *reconciler) deploymentsOf(ctx context.Context, secret client.Object) []reconcile.Request {
	var all appsv1.DeploymentList
	if err := r.client.List(ctx, &all, client.InNamespace(secret.GetNamespace())); err != nil {
		return nil // Never, from a cache that has synchronized.
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if d := &all.Items[i]; d.Spec.Template.Annotations["example.com/secret"] == secret.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		}
	}
	return requests
}
