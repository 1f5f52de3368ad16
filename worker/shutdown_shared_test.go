package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A pool that ends drops nothing while another pool, or a loop, has keys of the queue: a key that was added
// before the shutdown comes to them after its Done, and a drain waits for it.
func TestTwoOnOneQueue(t *testing.T) {
	queues := map[string]func() stringQueue{
		"fifo":     func() stringQueue { return newQueue() },
		"priority": func() stringQueue { return newPriorityQueue(priorityqueue.Config[string]{}) },
	}
	for name, newQueue := range queues {
		t.Run("other=pool/queue="+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, idle := newQueue(), 0
				calls := make(map[string]int)
				busy := run(t, worker.New(q, func(_ context.Context, key string) error {
					calls[key]++
					time.Sleep(time.Second)
					return nil
				}, options{}))
				q.Add("a")
				synctest.Wait()
				other := run(t, worker.New(q, func(context.Context, string) error { idle++; return nil }, options{}))
				addAll(q, "a") // The busy pool has it.
				other.endCleanly()
				busy.after(time.Hour)
				busy.returnedLeaving("nothing")
				if calls["a"] != 2 || idle != 0 {
					t.Errorf("%v, and the idle pool had %d", calls, idle)
				}
				wantMatchedDones(t, q)
			})
		})
		t.Run("other=loop/queue="+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				q.Add("a")
				key, _ := q.Get()
				q.Add("a")
				run(t, worker.New(q, fine, options{})).endCleanly()
				q.Done(key)
				if again, shutDown := q.Get(); again != "a" || shutDown {
					t.Fatalf("Get returned %q, %v", again, shutDown)
				}
				q.Done("a")
				wantMatchedDones(t, q)
			})
		})
	}
}

// A failing key that another pool handles is not left failing: that pool decides.
func TestFailingKeyOfAnotherPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		failing := worker.New(q, answers(errBroken), options{})
		first := run(t, failing)
		setWorkers(t, failing, 0)
		second := run(t, worker.New(q, takes(time.Minute), options{}))
		first.after(2 * time.Second) // The retry, after a second, is the second pool's.
		first.endCleanly()
		second.after(2 * time.Minute)
		second.endCleanly()
	})
}

// The last of two pools that end together drops what is queued, and says so.
func TestTwoOnOneQueueEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		first := run(t, worker.New(q, takes(time.Second), options{}))
		q.Add("first")
		synctest.Wait()
		second := run(t, worker.New(q, takes(2*time.Second), options{}))
		addAll(q, "second queued")
		synctest.Wait()
		first.cancel()
		second.cancel()
		first.after(time.Second)
		first.returnedLeaving("nothing")
		second.after(2 * time.Second)
		second.returnedLeaving("1 queued and not started: queued")
	})
}

// Stop(All) does not end the wait of somebody who has shut the queue down before.
func TestStopDuringShutDownContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		p := worker.New(q, takes(time.Second), options{})
		q.Add("a")
		q.Add("b")
		r := run(t, p)
		drained := make(chan error, 1)
		go func() { drained <- q.ShutDownContext(t.Context()) }()
		synctest.Wait()
		p.Stop(worker.All)
		r.after(time.Minute)
		r.returnedLeaving("nothing")
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}
