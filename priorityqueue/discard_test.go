package priorityqueue_test

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

func TestDiscard(t *testing.T) {
	q := priorityqueue.New(priorityqueue.Config[string]{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
	})
	defer q.ShutDown()
	q.AddRateLimited("fails")
	i := workqueue.Inspect(q)
	if !i.Remove("fails") || q.Has("fails") || q.NumRequeues("fails") != 0 {
		t.Error("the key, or its failures, are still there")
	}
	if q.Discard("fails") {
		t.Error("removed twice")
	}
	i.Pause()
	if !q.Stats().Paused {
		t.Error("not paused")
	}
	i.Resume()
	if q.Stats().Paused {
		t.Error("still paused")
	}
}
