package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func newPriorityQueue(c priorityqueue.Config[string]) *priorityqueue.Queue[string] {
	c.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)
	return priorityqueue.New(c)
}

// A key keeps its priority with every answer, unless the handler asks for another one.
func TestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		answers := []error{
			errBroken, worker.RequeueAfter(time.Second), worker.RequeueAfter(0),
			worker.Requeue{After: time.Second, Priority: priorityOf(-3)}, worker.Requeue{After: time.Second},
			worker.Requeue{Priority: priorityOf(9)}, nil,
		}
		var priorities []int
		start := time.Now()
		var times []time.Duration
		q.AddWithOpts(priorityqueue.AddOpts{Priority: 7}, "a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			priority, ok := worker.CallOf(ctx).Priority()
			if !ok {
				t.Error("no priority")
			}
			priorities, times = append(priorities, priority), append(times, time.Since(start))
			return answers[len(priorities)-1]
		}, options{}))
		r.after(time.Minute)
		r.endCleanly()
		equal(t, "priorities", priorities, 7, 7, 7, 7, -3, -3, 9)
		const s = time.Second
		equal(t, "at", times, 0, s, 2*s, 2*s, 3*s, 4*s, 4*s)
	})
}

// An add with a higher priority counts more than the handler's.
func TestRequeueDoesNotLowerAnAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		var priorities []int
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			priority, _ := worker.CallOf(ctx).Priority()
			if priorities = append(priorities, priority); len(priorities) > 1 {
				return nil
			}
			q.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, key)
			return worker.Requeue{After: time.Hour, Priority: priorityOf(2)}
		}, options{}))
		r.endCleanly()
		equal(t, "priorities", priorities, 0, 5)
	})
}

func TestNoPriority(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		calls := 0
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if _, ok := worker.CallOf(ctx).Priority(); ok {
				t.Error("a priority")
			}
			if calls++; calls > 1 {
				return nil
			}
			return worker.Requeue{After: time.Second, Priority: priorityOf(3)}
		}, options{}))
		r.after(time.Second)
		r.endCleanly()
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
	if _, ok := worker.CallOf(t.Context()).Priority(); ok {
		t.Error("a priority outside of a call")
	}
}
