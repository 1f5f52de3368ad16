package priorityqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// next gets a key and finishes it.
func next(q *priorityqueue.Queue[string]) string {
	key, shutdown := q.Get()
	if shutdown {
		return "shutdown"
	}
	q.Done(key)
	return key
}

func Example() {
	q := priorityqueue.New(priorityqueue.Config[string]{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Minute),
	})
	succeeded, ended := make(chan struct{}), make(chan struct{})
	reconcile := func(key string) error {
		if q.NumRequeues(key) < 2 {
			return errors.New("not yet")
		}
		fmt.Println(key)
		close(succeeded)
		return nil
	}
	go func() { // any number of them
		defer close(ended)
		for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
			if err := reconcile(key); err != nil {
				q.AddRateLimited(key) // again, later, at the same priority
			} else {
				q.Forget(key)
			}
			q.Done(key)
		}
	}()
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 10}, "default/web")
	<-succeeded
	q.ShutDownWithDrain()
	<-ended
	// Output: default/web
}

func ExampleQueue_AddWithOpts() {
	q := priorityqueue.New(priorityqueue.Config[string]{})
	q.Add("a")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 10}, "urgent", "also-urgent")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: -10}, "when there is time")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 10}, "a") // it is more urgent than it was
	for range 3 {
		fmt.Println(next(q))
	}
	// Output:
	// urgent
	// also-urgent
	// a
}

// A file that is being written is read when it has not changed for a second, or after five at the latest.
func ExampleAddOpts_debounce() {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	q := priorityqueue.New(priorityqueue.Config[string]{Clock: clock})
	defer q.ShutDown()
	changed := priorityqueue.AddOpts{After: time.Second, Delay: priorityqueue.Latest, MaxDelay: 5 * time.Second}
	var due []string
	for range 10 {
		q.AddWithOpts(changed, "file")
		info, _ := q.SnapshotKey("file")
		due = append(due, info.Due.Format("5.0"))
		clock.Step(500 * time.Millisecond)
	}
	fmt.Println(due, q.Len())
	// Output: [1.0 1.5 2.0 2.5 3.0 3.5 4.0 4.5 5.0 5.0] 1
}

func ExampleConfig_aging() {
	clock := testingclock.NewFakeClock(time.Now())
	q := priorityqueue.New(priorityqueue.Config[string]{Clock: clock, Aging: time.Second})
	q.Add("patient")
	for i := range 4 {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: 2}, fmt.Sprint("urgent ", i))
		fmt.Println(next(q))
		clock.Step(time.Second)
	}
	// Output:
	// urgent 0
	// urgent 1
	// urgent 2
	// patient
}

func ExampleConfig_group() {
	q := priorityqueue.New(priorityqueue.Config[string]{
		Group: func(key string) string { tenant, _, _ := strings.Cut(key, "/"); return tenant },
		Weight: func(tenant string) int {
			if tenant == "gold" {
				return 2
			}
			return 1
		},
	})
	q.AddWithOpts(priorityqueue.AddOpts{}, "big/1", "big/2", "big/3", "big/4", "gold/1", "gold/2",
		"gold/3", "small/1")
	for q.Len() > 0 {
		fmt.Println(next(q))
	}
	// Output:
	// big/1
	// gold/1
	// gold/2
	// small/1
	// big/2
	// gold/3
	// big/3
	// big/4
}

func ExampleConfig_limit() {
	q := priorityqueue.New(priorityqueue.Config[string]{
		Group: func(key string) string { tenant, _, _ := strings.Cut(key, "/"); return tenant },
		Limit: func(string) int { return 1 }, // a tenant's keys exclude each other
	})
	q.AddWithOpts(priorityqueue.AddOpts{}, "a/1", "a/2", "b/1")
	first, _ := q.Get()
	second, _ := q.Get()
	fmt.Println(first, second, q.Len())
	q.Done(first)
	third, _ := q.Get()
	fmt.Println(third)
	// Output:
	// a/1 b/1 1
	// a/2
}

func ExampleConfig_minInterval() {
	clock := testingclock.NewFakeClock(time.Now())
	q := priorityqueue.New(priorityqueue.Config[string]{Clock: clock, MinInterval: time.Minute})
	defer q.ShutDown()
	q.Add("a")
	fmt.Println(next(q))
	clock.Step(20 * time.Second)
	q.Add("a")
	info, _ := q.SnapshotKey("a")
	fmt.Println(info.State, info.Due.Sub(clock.Now()))
	// Output:
	// a
	// waiting 40s
}

func ExampleQueue_GetBatch() {
	q := priorityqueue.New(priorityqueue.Config[string]{})
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 3}, "a", "b", "c")
	batch, _ := q.GetBatch(context.Background(), 2)
	for _, k := range batch {
		fmt.Println(k.Key, k.Priority)
		q.Done(k.Key)
	}
	// Output:
	// a 3
	// b 3
}

func ExampleQueue_Remove() {
	q := priorityqueue.New(priorityqueue.Config[string]{})
	q.AddAfter("deleted", time.Hour)
	fmt.Println(q.Remove("deleted"))
	fmt.Println(q.Remove("deleted"))
	// Output:
	// true
	// false
}

func ExampleQueue_SnapshotKeys() {
	q := priorityqueue.New(priorityqueue.Config[string]{})
	q.Add("b")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 7}, "a")
	key, _ := q.Get()
	q.Add(key)
	var lines []string
	for k := range q.SnapshotKeys() {
		lines = append(lines, fmt.Sprint(k.Key, ": ", k.State, ", again: ", k.Again))
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
	// Output:
	// a: processing, again: true
	// b: queued, again: false
}

func ExampleQueue_Pause() {
	q := priorityqueue.New(priorityqueue.Config[string]{})
	q.Pause(operate.UntilResumed)
	q.Add("a")
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := q.GetContext(ctx)
	fmt.Println(err)
	q.Resume()
	fmt.Println(next(q))
	// Output:
	// context deadline exceeded
	// a
}

// A handler that waits for a rollout to become healthy gives up when its key is added again for a new
// generation, and not when a status has changed. Both are causes of the next hand-out.
func ExampleAddOpts_cause() {
	q := priorityqueue.New(priorityqueue.Config[string]{})
	q.AddWithOpts(priorityqueue.AddOpts{Cause: &workqueue.Cause{Reason: "created"}}, "default/web")
	key, _ := q.Get()
	fmt.Println("handles", key, "because:", q.Causes(key))
	again := q.AddedAgain(key)
	for _, cause := range []workqueue.Cause{{Reason: "new status", Quiet: true}, {Reason: "new generation"}} {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: 1, Cause: &cause}, key)
		select {
		case <-again:
			fmt.Println(cause.Reason, "interrupts")
		default:
			fmt.Println(cause.Reason, "does not interrupt")
		}
	}
	q.Done(key)
	fmt.Println("queued again because:", q.Causes(key))
	// Output:
	// handles default/web because: created
	// new status does not interrupt
	// new generation interrupts
	// queued again because: new status; new generation
}

// The keys of a tenant that is broken are left alone until it is repaired.
func ExampleQueue_PauseGroup() {
	q := priorityqueue.New(priorityqueue.Config[string]{
		Group: func(key string) string {
			tenant, _, _ := strings.Cut(key, "/")
			return tenant
		},
	})
	q.AddWithOpts(priorityqueue.AddOpts{}, "broken/1", "broken/2", "fine/1")
	q.PauseGroup("broken", operate.UntilResumed)
	fmt.Println(next(q))
	st := q.Stats()
	fmt.Println(st.Blocked, "of", st.Queued, "queued keys are blocked, paused:", q.PausedGroups())
	q.ResumeGroup("broken")
	fmt.Println(next(q), next(q))
	// Output:
	// fine/1
	// 2 of 2 queued keys are blocked, paused: [broken]
	// broken/1 broken/2
}
