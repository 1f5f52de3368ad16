package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Very many keys that have failed, and were removed from the queue and forgotten, leave no memory, and are not
// reported at the end.
func TestMemoryOfFailingKeys(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector takes memory")
	}
	synctest.Test(t, func(t *testing.T) {
		const n = 300_000
		q := priorityqueue.New(priorityqueue.Config[int]{})
		p := worker.New(q, func(context.Context, int) error { return errBroken }, worker.Options[int]{})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- p.Run(ctx) }()
		synctest.Wait()
		before := testkit.Heap()
		for key := range n {
			q.Add(key)
		}
		synctest.Wait()
		for key := range n {
			q.Remove(key)
			q.Forget(key)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if grown := testkit.Heap() - before; grown > n*4 {
			t.Errorf("%d keys that are gone leave %d bytes", n, grown)
		}
		cancel()
		if err := <-result; err != nil || !p.Left().Empty() {
			t.Errorf("Run returned %v, left: %v", err, p.Left())
		}
	})
}
