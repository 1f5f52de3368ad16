package worker_test

import (
	"context"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

// TestFewAllocations hands keys to a worker, one at a time and many at once, without hooks, logger and
// timeout. A call needs its own memory, and a context.
func TestFewAllocations(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[pair]())
	handled := make(chan pair)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		result <- worker.Run(ctx, q, func(ctx context.Context, key pair) error {
			if worker.CallOf(ctx).Attempt() != 1 {
				t.Error("it has not failed")
			}
			handled <- key
			return nil
		}, worker.Options[pair]{Workers: 2, MaxRetries: 3})
	}()
	var keys [100]pair
	for i := range keys {
		keys[i].name = string(rune('0' + i))
	}
	for _, n := range []int{1, len(keys)} {
		if a := testing.AllocsPerRun(200, func() {
			for _, key := range keys[:n] {
				q.Add(key)
			}
			for range keys[:n] {
				<-handled
			}
		}); a > float64(4*n) {
			t.Errorf("%d keys: %v allocations", n, a)
		}
	}
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
