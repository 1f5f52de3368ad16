package redisqueue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// One key goes from one replica to another, and comes again when it was added meanwhile.
func TestTwoReplicas(t *testing.T) {
	s := startServer(t)
	a, b := newTestQueue(t, s.client(), Config[string]{}), newTestQueue(t, s.client(), Config[string]{})
	a.Add("x")
	a.Add("x")
	mustGet(t, b, "x")
	if err := a.AddContext(within(t, 5*time.Second), "x"); err != nil {
		t.Fatal(err)
	}
	if st := freshStats(t, a); st.Processing != 1 || st.Again != 1 || st.Queued != 0 {
		t.Errorf("Stats() = %+v, want one key that is processed and was added again", st)
	}
	b.Done("x")
	if err := b.Flush(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	mustGet(t, a, "x")
	a.Done("x")
	if st := freshStats(t, a); st.Queued+st.Processing+st.Again+st.Waiting != 0 {
		t.Errorf("Stats() = %+v, want no keys", st)
	}
}

// A getter that sleeps is woken from another replica, long before the poll interval.
func TestWakeUp(t *testing.T) {
	s := startServer(t)
	a, b := newTestQueue(t, s.client(), Config[string]{PollInterval: 9 * time.Second}), newTestQueue(t, s.client(), Config[string]{PollInterval: 9 * time.Second})
	for range 20 {
		handleWhileAsleep(t, s, b, "x", func() { a.Add("x") })
	}
}

func TestGetContext(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := q.GetContext(ctx); err != context.DeadlineExceeded {
		t.Errorf("GetContext() of an empty queue: %v", err)
	}
	q.Add("x")
	mustGet(t, q, "x")
	q.Done("x")
	if st := freshStats(t, q); st.Processing != 0 {
		t.Errorf("the key was not Done: %+v", st)
	}
	q.ShutDown()
	if _, err := q.GetContext(context.Background()); !errors.Is(err, workqueue.ErrShutDown) {
		t.Errorf("GetContext() after shutdown: %v", err)
	}
}

func TestDelays(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{PollInterval: 9 * time.Second})
	began := time.Now()
	q.AddAfter("b", 300*time.Millisecond)
	q.AddAfter("a", time.Hour)
	q.AddAfter("a", 100*time.Millisecond)
	if st := freshStats(t, q); st.Waiting != 2 {
		t.Errorf("Stats() = %+v, want 2 keys that wait", st)
	}
	for i, want := range []string{"a", "b"} {
		mustGet(t, q, want)
		due := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}[i]
		if d := time.Since(began); d < due || d > due+3*time.Second { // the poll interval is longer
			t.Errorf("%s came after %v, want %v", want, d, due)
		}
		q.Done(want)
	}
}

// Adds with a delay that were confirmed are on the server, with their failures.
func TestConfirmedDelays(t *testing.T) {
	s := startServer(t)
	config := Config[string]{Logger: discard}
	config.Backoff.Base = time.Minute
	q := newTestQueue(t, s.client(), config)
	ctx := within(t, 20*time.Second)
	must(t, q.AddAfterContext(ctx, "later", time.Hour))
	must(t, q.AddRateLimitedContext(ctx, "failing"))
	if waiting := q.Snapshot(10).Waiting; len(waiting) != 2 || waiting[0].Requeues != 1 || waiting[1].Key != "later" {
		t.Errorf("%+v wait", waiting)
	}
}
