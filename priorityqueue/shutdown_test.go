package priorityqueue_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/operate"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// The waiting loop is there while a key waits, and only then. An empty queue without Aging and MinInterval
// does not read the clock.
func TestIdleQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var readings atomic.Int32
		q := pq.New(pq.Config[string]{Clock: &testkit.HookedClock{WithTicker: clock.RealClock{},
			OnNow: func() { readings.Add(1) }}})
		readings.Store(0)
		q.Add("a")
		drain(t, q, "a")
		q.Stats()
		if n := readings.Load(); n != 0 {
			t.Errorf("%d readings of the clock", n)
		}
		q.AddAfter("a", time.Second)
		q.AddAfter("b", time.Minute)
		time.Sleep(time.Second)
		synctest.Wait()
		q.Remove("b")
		drain(t, q, "a")
		// The bubble panics if the loop is still there. There is no ShutDown.
	})
}

// ShutDownNow leaves nothing but the keys that workers hold.
func TestShutDownNow(t *testing.T) {
	config := pq.Config[string]{
		Group: byPrefix, Limit: limit(1), MinInterval: time.Minute, Name: "q",
		MetricsProvider: &reader{},
	}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{}, "a/held", "a/blocked", "b/held", "c/done")
		hold(t, q, "a/held b/held c/done")
		q.Done("c/done") // rests
		gets := []*testkit.Call[string]{startGet(q), startGet(q), startGet(q)}
		gets[0].MustBlock(t, "Get")
		q.Pause(operate.UntilResumed)
		q.Add("d/queued")
		q.AddAfter("e/waits", time.Hour)
		q.AddAfter("a/held", time.Hour)
		q.Add("b/held")
		if keys := q.ShutDownNow(); !slices.Equal(keys, []string{"d/queued", "a/blocked", "b/held"}) {
			t.Errorf("ShutDownNow() = %q", keys)
		}
		for _, get := range gets {
			if got := get.MustReturn(t, "Get"); got != " "+workqueue.ErrShutDown.Error() {
				t.Errorf("Get() = %s", got)
			}
		}
		st := q.Stats()
		if st.Queued+st.Again+st.Waiting+st.Blocked != 0 || st.Processing != 2 || st.Dropped != 5 ||
			st.OldestQueued != 0 {
			t.Errorf("Stats() = %+v, want nothing but two held keys", st)
		}
		if got, shutdown := q.Get(); !shutdown {
			t.Errorf("Get() = %s", got)
		}
		if _, err := q.GetBatch(t.Context(), 3); err != workqueue.ErrShutDown {
			t.Errorf("GetBatch() = %v", err)
		}
		last := startDrain(q)
		last.MustBlock(t, "drain")
		q.Done("a/held")
		last.MustBlock(t, "drain")
		q.Done("b/held")
		if err := last.MustReturn(t, "drain"); err != nil {
			t.Error(err)
		}
		if keys, groups, lines := q.Remembered(); keys+groups+lines != 0 {
			t.Errorf("%d keys, %d groups and %d lines are remembered", keys, groups, lines)
		}
	})
	// Held keys that were added are not queued any more, in any place.
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		drained := startDrain(q)
		drained.MustBlock(t, "drain")
		q.ShutDownNow()
		if err := drained.MustReturn(t, "drain"); err != workqueue.ErrShutDown {
			t.Errorf("the drain returned %v", err)
		}
		q.Done("a")
		if st := q.Stats(); st.Queued+st.Again+st.Processing != 0 || st.Dropped != 1 {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

// More keys are due than one call makes ready. None of them is dropped.
func TestManyDueKeysAtShutDown(t *testing.T) {
	c := testkit.NewFakeClock()
	synctest.Test(t, func(t *testing.T) {
		q := pq.New(pq.Config[int]{Clock: c})
		for key := range 5000 {
			q.AddAfter(key, time.Second)
		}
		q.AddAfter(-1, time.Hour)
		synctest.Wait()
		c.Step(time.Second)
		q.ShutDown()
		if st := q.Stats(); st.Queued != 5000 || st.Waiting != 0 || st.Dropped != 1 {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

// A ShutDown while DropQueued takes the queued keys leaves them to it: each key is in its result.
func TestShutDownDuringDropQueued(t *testing.T) {
	const keys = 20_000
	for range 20 {
		q := pq.New(pq.Config[int]{})
		for i := range keys {
			q.Add(i)
		}
		q.ShutDown()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 50 {
				q.ShutDown()
			}
		}()
		if got := q.DropQueued(); len(got) != keys {
			t.Fatalf("DropQueued returned %d keys of %d", len(got), keys)
		}
		<-done
	}
}

// 10 s after the last sign of a worker ShutDownWithDrain logs what is left, drops it, and returns.
// ShutDownContext logs the same once, and waits on.
func TestDrainWithoutWorkersEnds(t *testing.T) {
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	config := pq.Config[string]{Name: "q", Group: func(key string) string { return key[:1] },
		Limit: func(string) int { return 1 }}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		for _, key := range []string{"a1", "a2", "a3", "b1", "b2"} {
			q.Add(key)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := q.ShutDownContext(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Hour {
			t.Errorf("ShutDownContext() = %v after %v", err, time.Since(began))
		}
		if st := q.Stats(); st.Queued != 5 || st.Dropped != 0 || strings.Count(log.String(), "queue=q keys=5\n") != 1 {
			t.Errorf("Stats() = %+v, log %q", st, log.String())
		}
		drain := testkit.Start(func() bool { q.ShutDownWithDrain(); return true })
		time.Sleep(9 * time.Second)
		hold(t, q, "a1")
		time.Sleep(time.Minute)
		drain.MustBlock(t, "a drain while a worker holds a key")
		q.Done("a1")
		time.Sleep(10*time.Second - 1)
		drain.MustBlock(t, "a drain before 10 s")
		time.Sleep(time.Nanosecond)
		drain.MustReturn(t, "a drain that nobody helps")
		if st := q.Stats(); st.Queued != 0 || st.Dropped != 4 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("Stats() = %+v, log %q", st, log.String())
		}
	})
}

// A worker may take the last key just before a drain would log it. If the key is left later, it is logged.
func TestDrainLogsWhenKeysAreLeft(t *testing.T) {
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		drain := testkit.Start(func() bool { q.ShutDownWithDrain(); return true })
		drain.MustBlock(t, "a drain while a worker holds a key")
		q.LogLeft() // It has waited for 10 s, and then the worker has taken the key.
		q.Done("a")
		time.Sleep(10 * time.Second)
		drain.MustReturn(t, "a drain that nobody helps")
		if lines := log.String(); strings.Count(lines, "keys=1\n") != 1 || strings.Count(lines, "\n") != 1 {
			t.Errorf("log: %q", lines)
		}
	})
}
