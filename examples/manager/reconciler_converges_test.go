package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// reports is a handler of logs that keeps which generations were reported. After each report the process may crash.
type reports struct {
	slog.Handler
	process    *handlertest.Process
	generation int64
	seen       map[int64]bool
}

func (r reports) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "generation" {
			r.generation = a.Value.Int64()
		}
	}
	return r
}

func (r reports) Enabled(context.Context, slog.Level) bool { return true }

func (r reports) Handle(_ context.Context, record slog.Record) error {
	if record.Message != "Rolled out" {
		return nil
	}
	// The logger gets no context.
	return r.process.Write(r.process.Context(), fmt.Sprint("reports generation ", r.generation),
		func() error { r.seen[r.generation] = true; return nil })
}

// However late its caches are, and whenever it crashes, it reports the last generation of the Deployment.
func TestConverges(t *testing.T) {
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		rollsOut := func(after time.Duration, replicas, ready int32) {
			s.At(after, func() {
				kubetest.Change(cluster, deployment(0, 0), func(d *appsv1.Deployment) {
					d.Spec.Replicas = &replicas
					d.Status.ObservedGeneration = d.Generation
					d.Status.UpdatedReplicas, d.Status.ReadyReplicas = ready, ready
				})
			})
		}
		s.At(time.Second, func() { cluster.Create(secret("1")); cluster.Create(deployment(0, 0)) })
		rollsOut(2*time.Second, 3, 3)
		rollsOut(5*time.Second, 4, 1)
		s.At(5500*time.Millisecond, func() { kubetest.Change(cluster, secret(""), func(s *corev1.Secret) { s.Data = secret("2").Data }) })
		rollsOut(7*time.Second, 4, 4)
		seen := make(map[int64]bool)
		s.Options.Workers, s.Runs = 20, 200
		s.Check(func() error {
			if !seen[2] {
				return fmt.Errorf("the last rollout is not reported, but %v", seen)
			}
			return nil
		})
		cluster.Start(func(m *kubetest.Manager) error {
			page := debug.NewHandler(debug.Options{})
			context.AfterFunc(m.Process.Context(), page.Close)
			logger := slog.New(reports{slog.DiscardHandler, m.Process, 0, seen})
			return setUp(m, page, sdktrace.NewTracerProvider(), &reconciler{m.GetClient(), logger})
		})
	})
}
