package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// serverQueue asks a server, which may be down, for NumRequeues.
type serverQueue struct {
	stringQueue
	down *bool
}

func (q serverQueue) NumRequeues(key string) int {
	n, _ := q.NumRequeuesContext(context.Background(), key)
	return n
}

func (q serverQueue) NumRequeuesContext(ctx context.Context, key string) (int, error) {
	if !*q.down {
		return q.stringQueue.NumRequeues(key), nil
	}
	select {
	case <-time.After(time.Second):
		return 0, errors.New("no answer")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func newServerQueue(down *bool) serverQueue {
	return serverQueue{workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)), down}
}

// A queue that cannot reach its server has not forgotten its keys. Snapshot does not ask it about each of them.
func TestFailingKeysOfAQueueThatDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var down bool
		q := newServerQueue(&down)
		for i := range n {
			q.Add(fmt.Sprint(i))
		}
		p := worker.New(q, func(context.Context, string) error { return errBroken }, options{})
		r := run(t, p)
		down = true
		begun := time.Now()
		if s := p.Snapshot(n); len(s.Failing) != n {
			t.Errorf("%d keys fail", len(s.Failing))
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Snapshot took %v", took)
		}
		r.after(10 * time.Minute) // Several sweeps.
		down = false
		q.Forget("0")
		if s := p.Snapshot(n); len(s.Failing) != n-1 || s.Stats.Failing != n-1 {
			t.Errorf("%d keys fail, or %d", len(s.Failing), s.Stats.Failing)
		}
		if e := left(t, r.end()); len(e.Failing) != n-1 {
			t.Errorf("%d keys are left failing", len(e.Failing))
		}
	})
}

// An attempt is not the first one again because the server does not answer.
func TestAttemptsOfAQueueThatDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down bool
		q := newServerQueue(&down)
		q.Add("a")
		var attempts []int
		p := worker.New(q, func(ctx context.Context, key string) error {
			attempts = append(attempts, worker.Attempt(ctx))
			return errBroken
		}, options{MaxRetries: 2})
		r := run(t, p)
		down = true
		for range 2 {
			q.Add("a")
			time.Sleep(time.Minute)
		}
		if dropped := p.Snapshot(10).Dropped; !slices.Equal(attempts, []int{1, 2, 3}) || len(dropped) != 1 {
			t.Errorf("attempts: %v, dropped: %v", attempts, dropped)
		}
		r.endCleanly()
	})
}

// A key that its handler wants again, and that the queue does not take back any more, is left, but has not failed.
func TestRefusedKeysHaveNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("refused")
		q.Add("sleeps")
		p := worker.New(q, func(_ context.Context, key string) error {
			time.Sleep(time.Second)
			if key == "refused" {
				return worker.RequeueAfter(0)
			}
			return nil
		}, options{Drain: worker.All})
		r := run(t, p)
		r.cancel()
		r.after(time.Second)
		if s := p.Stats(); s.Requeued != 1 || s.Failing != 0 {
			t.Errorf("Stats: %+v", s)
		}
		r.after(2 * time.Second)
		if e := left(t, r.returned()); !slices.Equal(e.NotStarted, []string{"refused"}) || p.Stats().Failing != 0 {
			t.Errorf("left: %+v, failing: %d", e, p.Stats().Failing)
		}
	})
}
