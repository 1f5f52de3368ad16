package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

// No matter what becomes of leases and replicas, each order is handled. (The queue that they share is in memory,
// and has no fences.)
func TestConverges(t *testing.T) {
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		s.Shared, s.Replicas, s.Runs = true, 3, 200
		handled := make(map[string]bool)
		s.Measure = func() any { return slices.Sorted(maps.Keys(handled)) }
		added := false
		s.Start = func(p *handlertest.Process) worker.Handler[string] {
			for i := range 12 {
				if !added {
					s.QueueOf(p).Add(fmt.Sprint("order/", i+1))
				}
			}
			added = true
			return func(ctx context.Context, key string) error {
				say := func(format string, args ...any) { p.Point(ctx, fmt.Sprintf(format, args...)) }
				if err := handle(ctx, key, say); err != nil {
					return err
				}
				return p.Write(ctx, "has handled "+key, func() error { handled[key] = true; return nil })
			}
		}
	})
}
