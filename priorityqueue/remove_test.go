package priorityqueue_test

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

func TestRemove(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		remove := func(key string, want pq.State) {
			t.Helper()
			if got := q.Remove(key); got != want {
				t.Fatalf("Remove(%s) = %v, want %v", key, got, want)
			}
		}
		remove("a", pq.Absent)
		for _, key := range []string{"a", "b", "c", "d"} {
			q.Add(key)
		}
		remove("b", pq.Queued)
		remove("d", pq.Queued)
		remove("b", pq.Absent)
		drain(t, q, "a c")
		q.AddAfter("a", time.Second)
		q.AddAfter("b", 2*time.Second)
		goroutines := testkit.Start(func() bool { return true }) // ends
		remove("a", pq.Waiting)
		remove("b", pq.Waiting)
		goroutines.MustReturn(t, "the waiting loop, which would make the bubble panic")
		time.Sleep(time.Minute)
		drain(t, q, "")
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		remove("a", pq.Processing)
		q.AddAfter("a", time.Second)
		remove("a", pq.Processing)
		q.Done("a")
		wantAt(t, q, "a", "absent")
		if st := q.Stats(); st != (workqueue.Stats{Adds: st.Adds, Retries: st.Retries}) {
			t.Errorf("Stats() = %+v", st)
		}
		q.Add("a")
		d := startDrain(q)
		d.MustBlock(t, "drain")
		remove("a", pq.Queued)
		if err := d.MustReturn(t, "drain after Remove"); err != nil {
			t.Error(err)
		}
	})
}

// Discard also forgets the key's failures.
func TestDiscard(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
	script(t, pq.Config[string]{RateLimiter: limiter}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddRateLimited("fails")
		if !q.Discard("fails") || q.Has("fails") || q.NumRequeues("fails") != 0 {
			t.Error("the key, or its failures, are still there")
		}
		if q.Discard("fails") {
			t.Error("removed twice")
		}
	})
}
