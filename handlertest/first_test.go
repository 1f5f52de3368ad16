package handlertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

func TestFirst(t *testing.T) {
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		sets := handlertest.NewWorld[string, int](s, "sets", nil)
		pods := handlertest.NewWorld[string, string](s, "pods", func(o handlertest.Object[string, string]) []string { return []string{o.Value} })
		pods.Set("x", "old")
		sets.Set("web", 2)
		s.Measure = func() any { return len(pods.All()) }
		s.Start = func(p *handlertest.Process) worker.Handler[string] {
			n := 0
			sets, pods := sets.Client(p), pods.Client(p)
			return func(ctx context.Context, key string) error {
				set, _ := sets.Cached(key)
				for have := len(pods.CachedAll()); have < set.Value+1; have++ {
					n++
					if _, err := pods.Create(ctx, fmt.Sprint(set.Key, "-", set.Version, "-", n), set.Key); err != nil {
						return err
					}
				}
				return nil
			}
		}
	})
}
