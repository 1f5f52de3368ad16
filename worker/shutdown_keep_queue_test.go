package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// With KeepQueue a program that has lost its leadership runs again, with a new pool, and no key is lost. The
// failures of the first pool count.
func TestKeepQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		addAll(q, "fails 2s 3s")
		var j journal
		handle := func(ctx context.Context, key string) error {
			if key == "fails" {
				attempt := worker.CallOf(ctx).Attempt()
				if j.add(fmt.Sprint("fails ", attempt)); attempt == 2 {
					return nil
				}
				return errBroken
			}
			return sleeper(&j)(ctx, key)
		}
		r := run(t, worker.New(q, handle, options{KeepQueue: true}))
		r.after(500 * time.Millisecond)
		r.cancel()
		r.after(2 * time.Second)
		r.returnedLeaving("nothing")
		equal(t, "first", j.take(), "fails 1", "start 2s", "return 2s")
		q.Add("1s")
		second := run(t, worker.New(q, handle, options{}))
		second.after(time.Minute)
		second.endCleanly()
		want := []string{"start 3s", "return 3s", "fails 2", "start 1s", "return 1s"}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("second: %q, want %q", got, want)
		}
	})
}

// The end of a pool does not stop another one on the same queue. A handler that is left behind runs on.
func TestKeepQueueForAnotherPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var j journal
		first := run(t, worker.New(q, sleeper(&j), options{KeepQueue: true, DrainTimeout: time.Second,
			CancelGrace: worker.NoGrace}))
		q.Add("5s")
		synctest.Wait()
		second := run(t, worker.New(q, sleeper(&j), options{KeepQueue: true}))
		first.cancel()
		first.after(time.Second)
		first.returnedLeaving("1 still running: 5s")
		j.take()
		q.Add("1s")
		q.Add("5s") // Held by the first pool.
		second.after(time.Minute)
		second.endCleanly()
		equal(t, "got", j.take(), "start 1s", "return 1s", "return 5s", "start 5s", "return 5s")
		wantMatchedDones(t, q)
	})
}

// A key that is got too late goes back into a queue that is kept, with its priority.
func TestKeepQueueKeyThatIsGotTooLate(t *testing.T) {
	for _, want := range []int{5, -100} {
		synctest.Test(t, func(t *testing.T) {
			q := newPriorityQueue(priorityqueue.Config[string]{})
			q.AddWithOpts(priorityqueue.AddOpts{Priority: want, Cause: &workqueue.Cause{Reason: "created"}}, "a")
			r := run(t, worker.New(latePriorityQueue{lateQueue{q}, q}, sleeper(new(journal)),
				options{KeepQueue: true}))
			r.endCleanly()
			if key, priority, _ := q.GetWithPriority(); key != "a" || priority != want {
				t.Errorf("got %v with priority %d, want %d", key, priority, want)
			}
			q.Done("a")
			q.ShutDown()
			wantMatchedDones(t, q)
		})
	}
}

// Keys that are got too late go back into a queue that is kept with their causes, however they were merged.
func TestKeepQueueKeepsCauses(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		defer q.ShutDown()
		for _, reason := range []string{"created", "changed", "changed again"} {
			for i := range 9 {
				q.AddCause(fmt.Sprint(i), workqueue.Cause{Reason: reason})
			}
		}
		late := lateQueue{q}
		run(t, worker.New(late, fine, options{Workers: 3, KeepQueue: true})).endCleanly()
		for range 9 {
			key, _ := q.Get()
			if got := q.Causes(key).String(); got != "created; changed; changed again" {
				t.Errorf("the causes of %s are %q", key, got)
			}
			q.Done(key)
		}
		wantMatchedDones(t, q)
	})
}

// A queue that somebody else has shut down takes back no key that was got too late. It is reported.
func TestKeepQueueKeyThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		q.AddWithOpts(priorityqueue.AddOpts{}, "a")
		r := run(t, worker.New(slowLate{latePriorityQueue{lateQueue{q}, q}}, sleeper(new(journal)),
			options{KeepQueue: true}))
		r.cancel()
		synctest.Wait()
		q.ShutDown()
		r.after(time.Second)
		r.returnedLeaving("1 queued and not started: a")
		wantMatchedDones(t, q)
	})
}

// slowLate takes a second to return a key that it has taken out of the queue.
type slowLate struct{ latePriorityQueue }

func (q slowLate) Next(ctx context.Context) (workqueue.HandOut[string], error) {
	key, err := q.latePriorityQueue.Next(ctx)
	time.Sleep(time.Second)
	return key, err
}

// latePriorityQueue is a lateQueue with priorities.
type latePriorityQueue struct {
	lateQueue
	operate.Operable[string]
}

// Stop(All) would shut the queue down.
func TestKeepQueueStopAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		addAll(q, "1s 2s")
		p := worker.New(q, sleeper(new(journal)), options{KeepQueue: true})
		r := run(t, p)
		p.Stop(worker.All)
		r.after(time.Second)
		r.returnedLeaving("nothing")
		if q.ShuttingDown() || q.Len() != 1 {
			t.Errorf("%d keys", q.Len())
		}
	})
}
