package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A line of the log has as its source the place where the program made the pool, and a line that a handler
// writes its own.
func TestLogSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{AddSource: true}))
		q := newQueue()
		pool := worker.New(q, func(ctx context.Context, _ string) error {
			worker.CallOf(ctx).Logger().WithGroup("g").Info("from the handler")
			return errors.New("broken")
		}, options{Logger: logger})
		q.Add("key")
		r := run(t, pool)
		r.after(time.Millisecond)
		_ = r.end()
		for line := range strings.Lines(log.String()) {
			if !strings.Contains(line, "worker/log_source_test.go:") {
				t.Errorf("the source is a line of the package: %s", line)
			}
		}
		if n := strings.Count(log.String(), "\n"); n < 3 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}

// A pool knows for how long its calls have been running. Keys on hold run no call.
func TestStatsOfRunningCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q"})
		pool := worker.New(q, func(ctx context.Context, key string) error {
			if key == "held" {
				return holds(ctx, "it is ready", time.Hour, func(func()) {})
			}
			<-ctx.Done()
			return nil
		}, options{Workers: 3, Name: "p"})
		r := run(t, pool)
		q.Add("held")
		q.Add("a")
		r.after(time.Second)
		q.Add("b")
		r.after(3 * time.Second)
		s := pool.Stats()
		if s.LongestRunning != 3*time.Second || s.UnfinishedWork != 5*time.Second || s.OnHold != 1 || s.Busy != 2 {
			t.Errorf("longest %v, unfinished %v, %d held, %d busy", s.LongestRunning, s.UnfinishedWork, s.OnHold, s.Busy)
		}
		if s.Name != "p" || s.Queue != "q" {
			t.Errorf("pool %q of queue %q", s.Name, s.Queue)
		}
		_ = r.end()
	})
}
