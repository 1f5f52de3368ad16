package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/handlertest"
)

// reports is a handler of logs that keeps which rollouts were reported. After each report the process may
// crash.
type reports struct {
	slog.Handler
	process *handlertest.Process
	name    string // of the Deployment, and its generation
	seen    map[string]bool
}

func (r reports) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		r.name += a.Value.String() + " "
	}
	return r
}

func (r reports) Enabled(context.Context, slog.Level) bool { return true }

func (r reports) Handle(_ context.Context, record slog.Record) error {
	if record.Message != "Rolled out" {
		return nil
	}
	// The logger gets no context.
	return r.process.Write(r.process.Context(), "reports "+r.name,
		func() error { r.seen[r.name] = true; return nil })
}

// However late its caches are, and whenever it crashes, it reports the last generation of the Deployment.
func TestConverges(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		truth := make(map[string]client.Object)
		seen := make(map[string]bool)
		var live *handlertest.Process
		var cached *cluster
		show := func(name string) {
			live.Show(strings.Fields(name)[0], name, func() {
				if err := cached.show(truth[name].DeepCopyObject().(client.Object)); err != nil {
					panic(err)
				}
			})
		}
		set := func(after time.Duration, o client.Object) {
			s.At(after, func() {
				name := fmt.Sprintf("%T %s", o, o.GetName())
				s.Tell("somebody: sets %s, generation %d", name, o.GetGeneration())
				truth[name] = o
				show(name)
			})
		}
		set(time.Second, secret("1"))
		set(time.Second, deployment(1, 0))
		set(2*time.Second, deployment(1, 3))
		set(5*time.Second, deployment(2, 1))
		set(5500*time.Millisecond, secret("2"))
		set(7*time.Second, deployment(2, 3))

		s.Settle, s.Runs = time.Minute, 50 // Each starts a whole manager.
		s.Without(handlertest.FailedCall)  // A logger does nothing about an error.
		s.Measure = func() any { return seen["default/web 2 "] }
		s.Program = func(p *handlertest.Process) {
			c := newCluster()
			live, cached = p, c
			// The listing: the fake informers call no handler that comes later than an object.
			for _, name := range slices.Sorted(maps.Keys(truth)) {
				show(name)
			}
			mgr, err := c.manager()
			if err == nil {
				page := debug.NewHandler(debug.Options{})
				defer page.Close()
				logger := slog.New(reports{slog.DiscardHandler, p, "", seen})
				err = setUp(mgr, page, sdktrace.NewTracerProvider(), &reconciler{mgr.GetClient(), logger})
			}
			if err == nil {
				err = mgr.Start(p.Context())
			}
			if err != nil && p.Context().Err() == nil {
				panic(err)
			}
		}
	})
}
