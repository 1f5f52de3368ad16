package priorityqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

var (
	_ worker.PriorityQueue[string] = (*priorityqueue.Queue[string])(nil)
	_ worker.KeyFinder[string]     = (*priorityqueue.Queue[string])(nil)
)

// What package worker asks for is right in every state of a key.
func TestForWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := priorityqueue.New(priorityqueue.Config[string]{})
		want := func(when string, has bool, priority int) {
			t.Helper()
			if q.Has("a") != has || q.PriorityOf("a") != priority {
				t.Errorf("%s: Has %v, PriorityOf %d", when, q.Has("a"), q.PriorityOf("a"))
			}
		}
		want("absent", false, 0)
		q.AddWithPriority("a", 3, time.Second)
		want("waiting", true, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		want("queued", true, 3)
		q.Get()
		want("held", true, 3)
		q.AddWithPriority("a", 2, 0)
		want("added again", true, 3) // Until Done, the priority is that of the hand-out.
		q.Done("a")
		want("queued again", true, 2)
		q.Remove("a")
		want("removed", false, 0)
	})
}
