package priorityqueue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
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
		goroutines := start(func() bool { return true }) // ends
		remove("a", pq.Waiting)
		remove("b", pq.Waiting)
		goroutines.mustReturn(t, "the waiting loop, which would make the bubble panic")
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
		d.mustBlock(t, "drain")
		remove("a", pq.Queued)
		if err := d.mustReturn(t, "drain after Remove"); err != nil {
			t.Error(err)
		}
	})
}

func TestGetBatch(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		batch := start(func() []string { b, _ := q.GetBatch(context.Background(), 2); return b })
		batch.mustBlock(t, "GetBatch")
		q.AddAll(slices.Values([]string{"a", "b", "c"}))
		if got := batch.mustReturn(t, "GetBatch"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("GetBatch(2) = %v", got)
		}
		if got, err := q.GetBatch(context.Background(), 1000); !slices.Equal(got, []string{"c"}) || err != nil {
			t.Errorf("GetBatch(1000) = %v, %v", got, err)
		}
		wantPanic(t, "GetBatch(0)", "priorityqueue: GetBatch", func() { _, _ = q.GetBatch(context.Background(), 0) })
		ctx, cancel := context.WithCancel(context.Background())
		canceled := start(func() error { _, err := q.GetBatch(ctx, 1); return err })
		canceled.mustBlock(t, "GetBatch")
		cancel()
		if err := canceled.mustReturn(t, "GetBatch, canceled"); err != context.Canceled {
			t.Error(err)
		}
		q.ShutDown()
		if _, err := q.GetBatch(context.Background(), 1); err != workqueue.ErrShutDown {
			t.Errorf("GetBatch() after shutdown = %v", err)
		}
	})
}

func TestPause(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		q.Pause()
		q.Add("a")
		get := startGet(q)
		get.mustBlock(t, "Get of a paused queue")
		if q.Len() != 1 {
			t.Errorf("Len() = %d", q.Len())
		}
		q.Resume()
		if got := get.mustReturn(t, "Get after Resume"); got != "a <nil>" {
			t.Error(got)
		}
		q.Pause()
		q.Add("b")
		get = startGet(q)
		get.mustBlock(t, "Get of a paused queue")
		q.ShutDown()
		if got := get.mustReturn(t, "Get after ShutDown"); got != "b <nil>" {
			t.Error(got)
		}
		q.Pause()
		startGet(q).mustReturn(t, "Get after ShutDown and Pause")
	})
}
