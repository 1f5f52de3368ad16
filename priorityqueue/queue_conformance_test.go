package priorityqueue_test

import (
	"testing"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// It is a queue as those of package workqueue are, but for the documented differences: one entry a key, and
// retries that merge. Of its metrics there are only those that are read, which TestStats is about.
func TestConformance(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			return pq.New(pq.Config[string]{Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock,
				RateLimiter: c.RateLimiter})
		},
		NewAny: func(c workqueuetest.Config[any]) workqueue.TypedInterface[any] {
			return pq.New(pq.Config[any]{Clock: c.Clock, RateLimiter: c.RateLimiter})
		},
		Check: func(q workqueue.TypedInterface[string]) error {
			return q.(*pq.Queue[string]).CheckInvariants()
		},
		NoMetrics:     true,
		OneEntry:      true,
		PlaceOfAdd:    true,
		MergesRetries: true,
		Known: map[string]string{
			"MetricsOfUnnamedQueue": "its provider is no StatsProvider, and New refuses others",
		},
	}.Run(t)
}
