package priorityqueue_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

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
