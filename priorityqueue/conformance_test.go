package priorityqueue_test

import (
	"testing"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// merges is why models of two entries a key do not fit. TestAgainstModel has one that does.
const merges = "an AddAfter of a key that is queued, or will be when its worker is Done, does nothing"

// It is a queue as those of package workqueue are, but for the documented differences.
func TestConformance(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			return pq.New(pq.Config[string]{Clock: c.Clock, RateLimiter: c.RateLimiter})
		},
		NewAny: func(c workqueuetest.Config[any]) workqueue.TypedInterface[any] {
			return pq.New(pq.Config[any]{Clock: c.Clock, RateLimiter: c.RateLimiter})
		},
		Check: func(q workqueue.TypedInterface[string]) error {
			return q.(*pq.Queue[string]).CheckInvariants()
		},
		NoMetrics:       true,
		AddCancelsDelay: true,
		MergesRetries:   true,
		Known: map[string]string{
			"Model":                  merges,
			"ModelWithShutDown":      merges,
			"ModelWithUnmatchedDone": merges,
			"ModelWithTies":          merges,
		},
	}.Run(t)
}
