package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/wait"
	"github.com/keyedqueue/workqueue/worker"
)

// reconciler waits for rollouts.
type reconciler struct {
	client client.Client
	logger *slog.Logger
}

// Reconcile waits until a Deployment is what its spec asks for, or until there is something newer to wait
// for.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var d appsv1.Deployment
	if err := r.client.Get(ctx, request.NamespacedName, &d); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	logger := r.logger.With("deployment", request.String(), "generation", d.Generation)
	logger.Info("Waiting", "attempt", worker.CallOf(ctx).Attempt(), "causes",
		worker.CallOf(ctx).Causes().String())
	// ctx is for what must be finished, such as a write to the cluster. This is worth interrupting:
	err := wait.PollUntilContextCancel(worker.CallOf(ctx).UntilAdded(), time.Second, true,
		func(ctx context.Context) (bool, error) {
			var now appsv1.Deployment
			err := r.client.Get(ctx, request.NamespacedName, &now)
			return err == nil && isRolledOut(&now), err
		})
	if err != nil {
		// If the request was added again, that is no failure, and it is reconciled again at once.
		return reconcile.Result{}, fmt.Errorf("waiting for the rollout: %w", err)
	}
	logger.Info("Rolled out")
	return reconcile.Result{}, nil
}

// isRolledOut reports whether all replicas are new and ready.
func isRolledOut(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation &&
		d.Status.UpdatedReplicas == *d.Spec.Replicas && d.Status.ReadyReplicas == *d.Spec.Replicas
}

// logSpans is an exporter that logs spans.
type logSpans struct{ logger *slog.Logger }

func (l logSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		attrs := []slog.Attr{slog.Duration("duration", s.EndTime().Sub(s.StartTime()))}
		for _, a := range s.Attributes() {
			attrs = append(attrs, slog.String(strings.TrimPrefix(string(a.Key), "workqueue."), a.Value.String()))
		}
		l.logger.LogAttrs(ctx, slog.LevelInfo, "Span "+s.Name(), attrs...)
	}
	return nil
}

func (logSpans) Shutdown(context.Context) error { return nil }
