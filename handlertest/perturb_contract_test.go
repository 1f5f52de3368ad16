package handlertest

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// A perturbed queue that nothing disturbs keeps the whole contract.
func TestPerturbedQueueKeepsTheContract(t *testing.T) {
	calm := hooks[string]{
		decide: func(string, string) time.Duration { return 0 },
		after:  func(d time.Duration, _ string, do func()) { time.AfterFunc(d, do) },
		tell:   func(string, string) {},
		dead:   func() bool { return false },
	}
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			return perturb(workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter,
				workqueue.TypedRateLimitingQueueConfig[string]{
					Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock,
				}), calm)
		},
		Lacks: map[string]string{workqueuetest.AnyKeys: "its hooks are for strings"},
	}.Run(t)
}

// leaser is a queue that hands out keys for a limited time.
type leaser struct {
	workqueue.TypedRateLimitingInterface[string]
	leasing.Leaser[string]
}

func TestPerturbKeepsInterfaces(t *testing.T) {
	root := workqueue.NewTypedRateLimitingQueue[string](nil)
	for _, inner := range []workqueue.TypedRateLimitingInterface[string]{
		root, priorityqueue.New(priorityqueue.Config[string]{}), leaser{TypedRateLimitingInterface: root},
		struct {
			workqueue.TypedRateLimitingInterface[string]
		}{root},
	} {
		for _, fault := range []Fault{Late, Leases} {
			workqueuetest.Wraps(t, workqueue.TypedInterface[string](Perturb(inner, 1, fault)),
				workqueue.TypedInterface[string](inner))
		}
	}
}
