package kubetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

// Scenario is what is tested. See package [github.com/keyedqueue/workqueue/handlertest].
type Scenario = handlertest.Scenario[reconcile.Request]

// Converges tests that a reconciler reaches the same outcome under every disturbance. See
// [github.com/keyedqueue/workqueue/handlertest.Converges].
func Converges(t *testing.T, scenario func(s *Scenario)) {
	t.Helper()
	handlertest.Converges(t, scenario)
}

// Find is Converges for tests that want the report. See
// [github.com/keyedqueue/workqueue/handlertest.Find].
func Find(t *testing.T, scenario func(s *Scenario)) (report string) {
	t.Helper()
	return handlertest.Find(t, scenario)
}

// Start makes the controllers of each process the scenario's handler, run by one worker unless
// Scenario.Options has more. It sets Scenario.Start. SetUp sets them up, as SetupWithManager does. What a
// reconciler remembers must be made there: a crash loses it.
func (c *Cluster) Start(setUp func(m *Manager) error) {
	if c.scenario.Options.Workers == 0 {
		c.scenario.Options.Workers = 1
	}
	if c.scenario.Measure == nil {
		c.scenario.Measure = c.measure
	}
	c.scenario.Start = func(p *handlertest.Process) worker.Handler[reconcile.Request] {
		m := newManager(c, p, newRequests(c.scenario.QueueOf(p), p.Context().Done()))
		err := setUp(m)
		if err == nil {
			err = m.start()
		}
		if err != nil && p.Context().Err() == nil {
			panic(fmt.Sprintf("kubetest: the controller does not start: %v", err))
		}
		return handle(m.reconcile)
	}
}

// handle returns a reconciler as a handler.
func handle(r reconcile.Func) worker.Handler[reconcile.Request] {
	return func(ctx context.Context, request reconcile.Request) error {
		result, err := r(ctx, request)
		switch {
		case errors.Is(err, reconcile.TerminalError(nil)):
			return worker.Terminal(err)
		case err != nil:
			return err
		case result.RequeueAfter > 0:
			return worker.RequeueAfter(result.RequeueAfter)
		//lint:ignore SA1019 Reconcilers still return it.
		case result.Requeue:
			return worker.RequeueAfter(time.Second) // 1 s stands for the rate limiter's delay.
		}
		return nil
	}
}
