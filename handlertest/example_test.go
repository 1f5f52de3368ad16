package handlertest_test

import (
	"context"
	"fmt"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

// printer stands for a *testing.T.
type printer struct{}

func (printer) Helper()      {}
func (printer) Name() string { return "TestSets" }
func (printer) Fatalf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
}

// A handler creates the pods that are missing. It counts those that its cache shows, and gives each a new
// name. So it creates too many when the cache does not show yet what it has created itself.
func Example() {
	var t printer
	// In your test file this is a function TestSets(t *testing.T).
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
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
	})
	// Output:
	// handlertest: the outcome differs from that of the undisturbed run:
	// 	undisturbed: 2
	// 	here:        3
	//
	//        0s  somebody: sets sets/web@1 = 2
	//        0s  the process: starts
	//        0s  the process: its cache lists sets/web@1
	//        0s  the process: its cache lists no pods
	//       1ms  web: the handler begins
	//       2ms  web: creates pods/101 = web
	//       3ms  the process: its cache shows pods/101@2
	//       3ms  web: creates pods/102 = web
	//       3ms  web: the handler returns nil
	//       3ms  the process: its cache lags: it shows pods/102@3 3ms later
	//       4ms  web: the handler begins
	//       5ms  web: creates pods/103 = web
	//       5ms  web: the handler returns nil
	//       7ms  the process: its cache shows pods/102@3
	//       7ms  the process: its cache shows pods/103@4
	//       8ms  web: the handler begins
	//       8ms  web: the handler returns nil
	//       9ms  web: the handler begins
	//       9ms  web: the handler returns nil
	//
	// undisturbed, from where the stories part:
	//       4ms  the process: its cache shows pods/102@3
	//       4ms  web: the handler begins
	//       4ms  web: the handler returns nil
	//       5ms  web: the handler begins
	//       5ms  web: the handler returns nil
	//
	// repeat: HANDLERTEST='lag:pods#2=3ms' go test -run '^TestSets$'  # seed 7, run 22; shrunk from 5 disturbances
}
