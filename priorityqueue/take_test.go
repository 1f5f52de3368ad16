package priorityqueue_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
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

func TestGetBatch(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		batch := testkit.Start(func() []string { b, _ := q.GetBatch(context.Background(), 2); return b })
		batch.MustBlock(t, "GetBatch")
		q.AddAll(pq.AddOpts{}, slices.Values([]string{"a", "b", "c"}))
		if got := batch.MustReturn(t, "GetBatch"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("GetBatch(2) = %v", got)
		}
		if got, err := q.GetBatch(context.Background(), 1000); !slices.Equal(got, []string{"c"}) || err != nil {
			t.Errorf("GetBatch(1000) = %v, %v", got, err)
		}
		testkit.WantPanic(t, "GetBatch(0)", func() { _, _ = q.GetBatch(context.Background(), 0) }, "priorityqueue: a batch")
		ctx, cancel := context.WithCancel(context.Background())
		canceled := testkit.Start(func() error { _, err := q.GetBatch(ctx, 1); return err })
		canceled.MustBlock(t, "GetBatch")
		cancel()
		if err := canceled.MustReturn(t, "GetBatch, canceled"); err != context.Canceled {
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
		get.MustBlock(t, "Get of a paused queue")
		if q.Len() != 1 {
			t.Errorf("Len() = %d", q.Len())
		}
		q.Resume()
		if got := get.MustReturn(t, "Get after Resume"); got != "a <nil>" {
			t.Error(got)
		}
		q.Pause()
		q.Add("b")
		get = startGet(q)
		get.MustBlock(t, "Get of a paused queue")
		q.ShutDown()
		if got := get.MustReturn(t, "Get after ShutDown"); got != "b <nil>" {
			t.Error(got)
		}
		q.Pause()
		startGet(q).MustReturn(t, "Get after ShutDown and Pause")
	})
}

func TestDoneAndGet(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		ctx, cancel := context.WithCancel(t.Context())
		want := func(done, want string, wantErr error) {
			t.Helper()
			if key, err := q.DoneAndGet(ctx, done); key != want || err != wantErr {
				t.Fatalf("DoneAndGet(%q) = %q, %v, want %q, %v", done, key, err, want, wantErr)
			}
			if err := q.CheckInvariants(); err != nil {
				t.Fatal(err)
			}
		}
		q.Add("a")
		q.Add("b")
		hold(t, q, "a")
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "a")
		want("a", "a", nil) // again, and more urgent than b
		want("x", "b", nil) // x is not held, and a still is
		if st := q.Stats(); st.Processing != 2 || st.UnmatchedDones != 1 {
			t.Fatalf("Stats() = %+v", st)
		}
		// It sleeps until there is a key.
		q.AddAfter("c", time.Hour)
		want("a", "c", nil)
		// It counts as Done whatever comes next.
		q.Add("d")
		cancel()
		want("b", "", context.Canceled)
		if st := q.Stats(); st.Processing != 1 || st.Queued != 1 {
			t.Fatalf("Stats() = %+v, with b Done, c held and d queued", st)
		}
		ctx = t.Context()
		hold(t, q, "d")
		drained := make(chan error, 1)
		go func() { drained <- q.ShutDownContext(ctx) }()
		synctest.Wait()
		want("c", "", workqueue.ErrShutDown)
		want("d", "", workqueue.ErrShutDown)
		if err := <-drained; err != nil {
			t.Errorf("ShutDownContext() = %v", err)
		}
	})
}

// The key that is Done may be what kept its group at its limit, for the caller and for others.
func TestDoneAndGetInGroups(t *testing.T) {
	config := pq.Config[string]{Group: func(key string) string { return key[:1] }, Limit: limit(2)}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		for _, key := range []string{"a1", "a2", "a3", "a4"} {
			q.Add(key)
		}
		hold(t, q, "a1 a2")
		other := testkit.Start(func() string { key, _ := q.Get(); return key })
		if key, err := q.DoneAndGet(t.Context(), "a1"); key != "a3" || err != nil {
			t.Fatalf("DoneAndGet() = %q, %v", key, err)
		}
		q.Done("a2")
		if key := other.MustReturn(t, "Get"); key != "a4" {
			t.Errorf("Get() = %q", key)
		}
		// A worker that finds nothing leaves the wake-up of another's key to that one.
		other = testkit.Start(func() string { key, _ := q.DoneAndGet(t.Context(), "a4"); return key })
		q.Add("b1")
		if key := other.MustReturn(t, "DoneAndGet"); key != "b1" {
			t.Errorf("DoneAndGet() = %q", key)
		}
	})
}
