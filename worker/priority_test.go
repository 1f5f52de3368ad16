package worker_test

import (
	"context"
	"fmt"
	"slices"
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

// A key keeps its priority, whatever the handler answers, unless the handler asks for another one.
func TestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		answers := []error{
			errBroken, worker.RequeueAfter(time.Second), worker.RequeueAfter(0),
			worker.Requeue{After: time.Second, Priority: -3}, worker.RequeueAfter(time.Second), worker.Requeue{Priority: 9}, nil,
		}
		var priorities []int
		start := time.Now()
		var times []time.Duration
		q.AddWithOpts(priorityqueue.AddOpts{Priority: 7}, "a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			priority, ok := worker.Priority(ctx)
			if !ok {
				t.Error("no priority")
			}
			priorities, times = append(priorities, priority), append(times, time.Since(start))
			return answers[len(priorities)-1]
		}, options{}))
		r.after(time.Minute)
		r.endCleanly()
		if want := []int{7, 7, 7, 7, -3, -3, 9}; !slices.Equal(priorities, want) {
			t.Errorf("priorities %v, want %v", priorities, want)
		}
		const s = time.Second
		if want := []time.Duration{0, s, 2 * s, 2 * s, 3 * s, 4 * s, 4 * s}; !slices.Equal(times, want) {
			t.Errorf("at %v, want %v", times, want)
		}
	})
}

// An add with a higher priority counts more than the one that the handler asks for.
func TestRequeueDoesNotLowerAnAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		var priorities []int
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			priority, _ := worker.Priority(ctx)
			if priorities = append(priorities, priority); len(priorities) > 1 {
				return nil
			}
			q.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, key)
			return worker.Requeue{After: time.Hour, Priority: 2}
		}, options{}))
		r.endCleanly()
		if !slices.Equal(priorities, []int{0, 5}) {
			t.Errorf("priorities %v", priorities)
		}
	})
}

func TestNoPriority(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		calls := 0
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if _, ok := worker.Priority(ctx); ok {
				t.Error("a priority")
			}
			if calls++; calls > 1 {
				return nil
			}
			return worker.Requeue{After: time.Second, Priority: 3}
		}, options{}))
		r.after(time.Second)
		r.endCleanly()
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
	if _, ok := worker.Priority(t.Context()); ok {
		t.Error("a priority outside of a call")
	}
}

// Run returns in time whatever the queue holds back: here the keys of a group that is at its limit, because a
// handler does not return.
func TestQueueThatHoldsKeysBack(t *testing.T) {
	for _, drain := range []worker.Drain{worker.Running, worker.All, worker.Nothing} {
		for name, hide := range map[string]func(q stringQueue) stringQueue{
			"extended": func(q stringQueue) stringQueue { return q },
			"plain":    func(q stringQueue) stringQueue { return plain{q} },
		} {
			t.Run(fmt.Sprint(name, " drain=", drain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newPriorityQueue(priorityqueue.Config[string]{
						Group: func(key string) string { return key[:1] },
						Limit: func(string) int { return 1 },
					})
					for _, key := range []string{"a1", "a2", "a3"} {
						q.Add(key)
					}
					p := worker.New(hide(q), func(context.Context, string) error {
						time.Sleep(time.Hour)
						return nil
					}, options{Workers: 2, Drain: drain, DrainTimeout: 10 * time.Second, CancelGrace: 5 * time.Second})
					r := run(t, p)
					r.cancel()
					end := 15 * time.Second
					if drain == worker.Nothing {
						end = 5 * time.Second
					}
					r.after(end + 100*time.Millisecond)
					e := left(t, r.returned())
					if !slices.Equal(e.Unfinished, []string{"a1"}) || name == "extended" && !slices.Equal(e.NotStarted, []string{"a2", "a3"}) {
						t.Errorf("left: %+v", e)
					}
					// They are taken out when they can be.
					r.after(2 * time.Hour)
					wantMatchedDones(t, q)
				})
			})
		}
	}
}

// The keys of many groups are all reported although some are held back.
func TestSomeKeysAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{
			Group: func(key string) string { return key[:1] },
			Limit: func(string) int { return 1 },
		})
		for _, key := range []string{"a1", "a2", "b1", "b2", "c1"} {
			q.Add(key)
		}
		r := run(t, worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Hour)
			return nil
		}, options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}))
		r.cancel()
		r.after(100 * time.Millisecond)
		e := left(t, r.returned())
		slices.Sort(e.NotStarted)
		if !slices.Equal(e.Unfinished, []string{"a1"}) || !slices.Equal(e.NotStarted, []string{"a2", "b1", "b2", "c1"}) {
			t.Errorf("left: %+v", e)
		}
		r.after(time.Hour)
		wantMatchedDones(t, q)
	})
}
