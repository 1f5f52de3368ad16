package handlertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

// slowQueue is a queue around whose calls, half of the time, other goroutines have their turns.
type slowQueue[K comparable] struct {
	workqueue.ExtendedRateLimiting[K]
}

func newSlowQueue[K comparable]() workqueue.TypedRateLimitingInterface[K] {
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, 1000*time.Second)
	return slowQueue[K]{foreign.RateLimiting(workqueue.NewTypedRateLimitingQueue(delays))}
}

// others lets other goroutines have their turns, and returns what does so again.
func others() func() {
	turns := func() {
		if rand.IntN(2) > 0 {
			_ = slowKey("").String()
		}
	}
	turns()
	return turns
}

func (q slowQueue[K]) Add(key K)  { defer others()(); q.ExtendedRateLimiting.Add(key) }
func (q slowQueue[K]) Done(key K) { defer others()(); q.ExtendedRateLimiting.Done(key) }
func (q slowQueue[K]) ShutDown()  { defer others()(); q.ExtendedRateLimiting.ShutDown() }

func (q slowQueue[K]) AddAfter(key K, d time.Duration) {
	defer others()()
	q.ExtendedRateLimiting.AddAfter(key, d)
}

func (q slowQueue[K]) AddRateLimited(key K) {
	defer others()()
	q.ExtendedRateLimiting.AddRateLimited(key)
}

func (q slowQueue[K]) Next(ctx context.Context) (workqueue.HandOut[K], error) {
	defer others()()
	return q.ExtendedRateLimiting.Next(ctx)
}

// adding has handlers that add the keys of others at the moment at which their process may crash.
func adding(s *Scenario[string]) {
	apps := NewWorld[string, int](s, "apps", nil)
	for i := range 4 {
		apps.Set(fmt.Sprint("app-", i), i)
	}
	s.Replicas = 2
	s.Start = func(p *Process) worker.Handler[string] {
		client := apps.Client(p)
		return func(ctx context.Context, key string) error {
			o, err := client.Get(ctx, key)
			if err != nil || o.Value >= 100 {
				return err
			}
			o.Value += 100
			if o, err = client.Update(ctx, o); err == nil {
				s.QueueOf(p).Add(fmt.Sprint("app-", (o.Value+1)%4))
			}
			return err
		}
	}
}

// What a crash leaves in the queue, and what others do at its moment, depend on the seed alone.
func TestSameStoryOfASlowQueue(t *testing.T) {
	seeds := uint64(100)
	if testkit.RaceEnabled { // It is slow.
		seeds = 20
	}
	sameStory(t, slowed(everything), seeds)
	sameStory(t, slowed(crowded(false)), seeds/3)
	sameStory(t, slowed(adding), seeds)
}

func slowed[K comparable](scenario func(*Scenario[K])) func(*Scenario[K]) {
	return func(s *Scenario[K]) {
		scenario(s)
		s.Queue = newSlowQueue[K]
	}
}
