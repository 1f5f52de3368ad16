package handlertest_test

import (
	"context"
	"testing"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

// A handler creates the pods that are missing. It counts those that its cache shows, and gives each a new
// name. So it creates too many when the cache does not show yet what it has created itself.
func wantedPods(s *handlertest.Scenario[string]) {
	sets := handlertest.NewWorld[string, int](s, "sets", nil)
	pods := handlertest.NewWorld(s, "pods", func(pod handlertest.Object[int, string]) []string {
		return []string{pod.Value} // A change of a pod adds the key of its set.
	})
	sets.Set("web", 2) // Two pods are wanted.
	s.Measure = func() any { return len(pods.All()) }
	starts := 0
	s.Start = func(p *handlertest.Process) worker.Handler[string] {
		starts++
		sets, pods, name := sets.Client(p), pods.Client(p), 100*starts
		return func(ctx context.Context, key string) error {
			set, _ := sets.Cached(key)
			for have := len(pods.CachedAll()); have < set.Value; have++ {
				name++
				if _, err := pods.Create(ctx, name, key); err != nil {
					return err
				}
			}
			return nil
		}
	}
}

func Example() {
	TestPods := func(t *testing.T) { // Declare it in your test file.
		handlertest.Converges(t, wantedPods)
	}
	_ = TestPods
}
